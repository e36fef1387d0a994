"""Many messages from a file into the hub, each exactly once however often it is repeated.

Every item carries a key that depends only on where it came from and what it says, so a
run that was killed at any moment is simply run again: the hub answers what it already
has with the first answer. Nothing is remembered on this side.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.errors import Invalid, Unavailable
from appliance.sdk.catalogue import Catalogue
from appliance.sdk.http import HubClient, Json, Refused

CONTENT_BYTES_MAX = 65_536
BATCH_ITEMS_MAX = 200
BATCH_BYTES_MAX = 1_000_000  # of content; JSON may need six bytes for one, the hub takes 8 MB
ROUNDS_MAX = 20
PASSING = frozenset(
    {"SERVICE_UNAVAILABLE", "RATE_LIMITED", "STORAGE_FULL", "IDEMPOTENCY_IN_PROGRESS"}
)
REASONS_KEPT_MAX = 100


class Item(msgspec.Struct, frozen=True):
    """A message to be sent. `place` is its line (or number) in the file."""

    place: int
    channel: str
    topic: str
    sender: str
    content: str
    key: str


class Bad(msgspec.Struct, frozen=True):
    """Something in the file that can't be a message, and why."""

    place: int
    reason: str


class Summary(msgspec.Struct):
    """What a run did. `already` counts items the hub had from an earlier run."""

    read: int = 0
    sent: int = 0
    already: int = 0
    bad: int = 0
    attachments_skipped: int = 0
    last_event_id: int = 0
    seconds: float = 0.0
    reasons: list[Bad] = []


class BadItem(Invalid):
    code = "BAD_ITEM"
    sentence = "the file has an item that can't be imported"
    advice = "mend it and run the same command again, or add --skip-bad"


class HubOverloaded(Unavailable):
    sentence = "the hub kept refusing for now; what it took is safe"
    advice = "run the same command again later: nothing is sent twice"


def item_key(*parts: str | bytes) -> str:
    """A key that is the same for the same parts, and for no others."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "big"))
        digest.update(raw)
    return "import-" + digest.hexdigest()[:48]


class Importer:
    def __init__(
        self,
        client: HubClient,
        clock: Clock,
        *,
        skip_bad: bool = False,
        split: bool = False,
        pause: Callable[[float], None] = time.sleep,
        progress: Callable[[Summary], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._catalogue = Catalogue(client)
        self._clock = clock
        self._skip_bad = skip_bad
        self._split = split
        self._pause = pause
        self._progress = progress
        self._newest = 0
        self.summary = Summary()

    def run(self, entries: Iterable[Item | Bad]) -> Summary:
        """Sends all; raises BadItem at the first bad one unless they are to be skipped.

        What came before a bad one has been sent when it raises.
        """
        started = self._clock.monotonic()
        events = self._client.get("/api/v1/events", tail=1)["events"]
        self._newest = events[-1]["event_id"] if events else 0
        batch: list[Item] = []
        size = 0
        for item in self._good(entries, lambda: self._flush(batch)):
            if len(batch) >= self._batch_max() or size + len(item.content) > BATCH_BYTES_MAX:
                self._flush(batch)
                size = 0
            batch.append(item)
            size += len(item.content)
        self._flush(batch)
        self.summary.seconds = round(self._clock.monotonic() - started, 3)
        return self.summary

    def _batch_max(self) -> int:
        """A batch costs as many requests as it has items, so it must fit under the limit."""
        return min(self._client.rate_limit or BATCH_ITEMS_MAX, BATCH_ITEMS_MAX)

    def _good(
        self, entries: Iterable[Item | Bad], before_raising: Callable[[], None]
    ) -> Iterator[Item]:
        for entry in entries:
            self.summary.read += 1
            pieces = self._pieces(entry) if isinstance(entry, Item) else entry
            if isinstance(pieces, Bad):
                if not self._skip_bad:
                    before_raising()
                self._report(pieces)
            else:
                yield from pieces

    def _pieces(self, item: Item) -> list[Item] | Bad:
        size = len(item.content.encode("utf-8", "surrogatepass"))
        if size <= CONTENT_BYTES_MAX:
            return [item]
        if not self._split:
            return Bad(
                item.place,
                f"content of {size:,} bytes; a message holds {CONTENT_BYTES_MAX:,} (see --split)",
            )
        texts = split_text(item.content)
        return [
            msgspec.structs.replace(item, content=text, key=item_key(item.key, str(number)))
            for number, text in enumerate(texts)
        ]

    def _report(self, bad: Bad) -> None:
        self.summary.bad += 1
        if len(self.summary.reasons) < REASONS_KEPT_MAX:
            self.summary.reasons.append(bad)
        if not self._skip_bad:
            raise BadItem(f"item {bad.place}: {bad.reason}", details={"place": bad.place})

    def _flush(self, batch: list[Item]) -> None:
        """Sends what is in `batch` and empties it; insists on items that may pass later."""
        items, refused = list(batch), None
        batch.clear()
        waiting = []
        for item in items:
            try:
                body = self._body(item)
            except BadItem as error:
                refused = error
                break
            if body is not None:
                waiting.append((item, body))
        self._send(waiting)
        self._progress(self.summary)
        if refused is not None:
            raise refused

    def _send(self, waiting: list[tuple[Item, Json]]) -> None:
        for attempt in range(ROUNDS_MAX):
            if not waiting:
                return
            if attempt:
                self._pause(min(0.1 * 2**attempt, 5.0))
            outcomes = zip(waiting, self._post([body for _, body in waiting]), strict=True)
            waiting = [pair for pair, result in outcomes if not self._settle(pair[0], result)]
        if waiting:
            raise HubOverloaded

    def _post(self, bodies: list[Json]) -> list[Json]:
        """One result each. A batch refused for one malformed item is halved until that is found."""
        try:
            # No key for the batch: every item has its own.
            answer = self._client.post("/api/v1/messages/batch", {"messages": bodies}, key="")
            results: list[Json] = answer["results"]
            return results
        except Refused as error:
            if error.http_status != 400:
                raise
            if len(bodies) == 1:
                return [{**error.body, "error": error.message}]
            half = len(bodies) // 2
            return self._post(bodies[:half]) + self._post(bodies[half:])

    def _body(self, item: Item) -> Json | None:
        try:
            topic_id = self._catalogue.topic_id(item.channel, item.topic, create=True)
        except Refused as error:
            if error.http_status not in (400, 422):
                raise
            self._report(Bad(item.place, error.message))
            return None
        return {
            "topic_id": topic_id,
            "sender": item.sender,
            "content_raw": item.content,
            "idempotency_key": item.key,
        }

    def _settle(self, item: Item, result: Json) -> bool:
        """Counts the outcome of one item; False if it should be tried again."""
        if "error" in result:
            if result.get("code") in PASSING:
                return False
            self._report(Bad(item.place, str(result["error"])))
            return True
        # What is new has a new event; an old one means the hub knew the key.
        event_id = int(result["event_id"])
        if event_id > self._newest:
            self.summary.sent += 1
            self._newest = self.summary.last_event_id = event_id
        else:
            self.summary.already += 1
        return True


def split_text(text: str, bytes_max: int = CONTENT_BYTES_MAX) -> list[str]:
    """`text` in parts of at most `bytes_max` bytes of UTF-8, cut after a line where possible."""
    parts = []
    raw = text.encode("utf-8", "surrogatepass")
    while len(raw) > bytes_max:
        cut = raw.rfind(b"\n", 0, bytes_max) + 1
        if cut == 0:
            cut = bytes_max
            while raw[cut] & 0xC0 == 0x80:  # not inside a character
                cut -= 1
        parts.append(raw[:cut].decode("utf-8", "surrogatepass"))
        raw = raw[cut:]
    parts.append(raw.decode("utf-8", "surrogatepass"))
    return parts
