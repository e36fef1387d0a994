"""Imports messages from a file into the hub. A repeated run sends nothing twice.

Every item has a key that depends only on its source and its content. After an interrupted run
you run the import again: for items that it already has, the hub returns its first response.
The client stores nothing.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.errors import Invalid, Unavailable
from appliance.kernel.retry import RetrySettings, delay_seconds
from appliance.sdk.catalogue import Catalogue
from appliance.sdk.http import HubClient, Json, Refused

CONTENT_BYTES_MAX = 65_536
BATCH_ITEMS_MAX = 200
BATCH_BYTES_MAX = 1_000_000  # of content; JSON needs up to six times as much, the hub accepts 8 MB
ROUNDS_MAX = 20
BACKOFF = RetrySettings(initial_seconds=0.2, max_seconds=5.0)
TEMPORARY_ERRORS = frozenset(
    {"SERVICE_UNAVAILABLE", "RATE_LIMITED", "STORAGE_FULL", "IDEMPOTENCY_IN_PROGRESS"}
)
REASONS_KEPT_MAX = 100


class ImportItem(msgspec.Struct, frozen=True):
    """A message to send. `number` is its line, or its index, in the file."""

    number: int = msgspec.field(name="place")
    channel: str
    topic: str
    sender: str
    content: str
    key: str


class BadEntry(msgspec.Struct, frozen=True):
    """An entry of the file that is not a valid message, and the reason."""

    number: int = msgspec.field(name="place")
    reason: str


class ImportSummary(msgspec.Struct):
    """The counts of a run. `already` counts items that the hub had from an earlier run."""

    read: int = 0
    sent: int = 0
    already: int = 0
    bad: int = 0
    attachments_skipped: int = 0
    last_event_id: int = 0
    seconds: float = 0.0
    reasons: list[BadEntry] = []


class BadItem(Invalid):
    code = "BAD_ITEM"
    default_message = "the file contains an item that cannot be imported"
    default_hint = "correct the item and run the same command again, or add --skip-bad"


class HubOverloaded(Unavailable):
    default_message = "the hub is overloaded; accepted messages are stored"
    default_hint = "run the same command again later: no message is sent twice"


def item_key(*parts: str | bytes) -> str:
    """A key that depends only on the parts."""
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
        sleep: Callable[[float], None] = time.sleep,
        progress: Callable[[ImportSummary], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._catalogue = Catalogue(client)
        self._clock = clock
        self._skip_bad = skip_bad
        self._split = split
        self._sleep = sleep
        self._progress = progress
        self._newest = 0
        self.summary = ImportSummary()

    def run(self, entries: Iterable[ImportItem | BadEntry]) -> ImportSummary:
        """Send all entries. Without `skip_bad`, the first bad entry raises BadItem.

        Entries before a bad one have been sent when it raises.
        """
        started = self._clock.monotonic()
        events = self._client.get("/api/v1/events", tail=1)["events"]
        self._newest = events[-1]["event_id"] if events else 0
        batch: list[ImportItem] = []
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
        """Each item of a batch counts as a request, so a batch has to fit into the rate limit."""
        return min(self._client.rate_limit or BATCH_ITEMS_MAX, BATCH_ITEMS_MAX)

    def _good(
        self, entries: Iterable[ImportItem | BadEntry], before_raising: Callable[[], None]
    ) -> Iterator[ImportItem]:
        for entry in entries:
            self.summary.read += 1
            pieces = self._pieces(entry) if isinstance(entry, ImportItem) else entry
            if isinstance(pieces, BadEntry):
                if not self._skip_bad:
                    before_raising()
                self._report(pieces)
            else:
                yield from pieces

    def _pieces(self, item: ImportItem) -> list[ImportItem] | BadEntry:
        size = len(item.content.encode("utf-8", "surrogatepass"))
        if size <= CONTENT_BYTES_MAX:
            return [item]
        if not self._split:
            return BadEntry(
                item.number,
                f"content has {size:,} bytes; the limit is {CONTENT_BYTES_MAX:,} (see --split)",
            )
        texts = split_text(item.content)
        return [
            msgspec.structs.replace(item, content=text, key=item_key(item.key, str(number)))
            for number, text in enumerate(texts)
        ]

    def _report(self, bad: BadEntry) -> None:
        self.summary.bad += 1
        if len(self.summary.reasons) < REASONS_KEPT_MAX:
            self.summary.reasons.append(bad)
        if not self._skip_bad:
            raise BadItem(f"item {bad.number}: {bad.reason}", details={"place": bad.number})

    def _flush(self, batch: list[ImportItem]) -> None:
        """Send the items of `batch` and empty it. Retries items with temporary errors."""
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

    def _send(self, waiting: list[tuple[ImportItem, Json]]) -> None:
        for attempt in range(ROUNDS_MAX):
            if not waiting:
                return
            if attempt:
                self._sleep(delay_seconds(BACKOFF, attempt))
            outcomes = zip(waiting, self._post([body for _, body in waiting]), strict=True)
            waiting = [pair for pair, result in outcomes if not self._settle(pair[0], result)]
        if waiting:
            raise HubOverloaded

    def _post(self, bodies: list[Json]) -> list[Json]:
        """One result per item. A batch with a malformed item is split until that item is alone."""
        try:
            # The batch needs no key: every item has one.
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

    def _body(self, item: ImportItem) -> Json | None:
        try:
            topic_id = self._catalogue.topic_id(item.channel, item.topic, create=True)
        except Refused as error:
            if error.http_status not in (400, 422):
                raise
            self._report(BadEntry(item.number, error.message))
            return None
        return {
            "topic_id": topic_id,
            "sender": item.sender,
            "content_raw": item.content,
            "idempotency_key": item.key,
        }

    def _settle(self, item: ImportItem, result: Json) -> bool:
        """Count the result of one item. Returns False if it should be sent again."""
        if "error" in result:
            if result.get("code") in TEMPORARY_ERRORS:
                return False
            self._report(BadEntry(item.number, str(result["error"])))
            return True
        # A new message has a new event. An old event means that the hub knew the key.
        event_id = int(result["event_id"])
        if event_id > self._newest:
            self.summary.sent += 1
            self._newest = self.summary.last_event_id = event_id
        else:
            self.summary.already += 1
        return True


def split_text(text: str, bytes_max: int = CONTENT_BYTES_MAX) -> list[str]:
    """Split `text` into parts of at most `bytes_max` bytes of UTF-8, after a line if possible."""
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
