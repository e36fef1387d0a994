"""Producing and consuming envelopes. Delivery is at least once: consumers de-duplicate by id.

    with Producer(locate) as producer:
        producer.send("agents/Jen/inbox", envelope("sprint.assign", {"wave": "B"}))

    consumer = Consumer(locate, "agents/Jen/inbox")
    for delivery in consumer:
        work(delivery.envelope)
        delivery.ack()

    @consumer.handler            # ack when it returns, nack when it raises,
    def work(envelope): ...      # and the lease is renewed while it runs
    consumer.run()

`locate` is asked for the appliance again after every break: `find_hub` does.
"""

import json
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import msgspec

from appliance.courier.wire import BATCH_MAX
from appliance.kernel.errors import ApplianceError, Unavailable
from appliance.kernel.ids import random_id
from appliance.sdk.discovery import Endpoint, HubNotRunning, StaleServerFile
from appliance.sdk.websocket import Link, LinkBroken

Env = dict[str, Any]
Locate = Callable[[], Endpoint]

ANSWER_SECONDS_MAX = 30.0
WINDOW_MAX = 5_000
FRAME_ENVELOPES = 100
FRAME_BYTES_MAX = 200 * 1024
RENEW_SECONDS_MAX = 15.0
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
DEFAULT_LEASE_MS = 30_000
DIGITS_MAX = 4_000  # of an integer; Python converts no longer ones


class Problem(msgspec.Struct, frozen=True):
    """What an error frame says."""

    code: int = 0
    message: str = ""
    name: str = ""
    seq: int | None = None
    count: int = 1  # envelopes it is about, from `seq` on
    id: str | None = None
    field: str | None = None
    retry_after: float | None = None
    hint: str = ""


class Frame(msgspec.Struct, frozen=True):
    accepted: int | None = None
    error: Problem | None = None
    deliver: Any = None
    attempt: int = 1


class EnvelopeRefused(ApplianceError):
    """The appliance did not take an envelope; `details` has what it said."""

    kind = "invalid"
    code = "ENVELOPE_REFUSED"
    sentence = "the appliance did not take the envelope"
    advice = "details have its own error: docs/errors.md says what it means"

    def __init__(self, problem: Problem, id_: str = "") -> None:
        super().__init__(
            problem.message or None,
            details={"status": problem.code, "code": problem.name, "id": id_},
            hint=problem.hint,
            retry_after=problem.retry_after,
        )
        self.http_status = problem.code


_frame = msgspec.json.Decoder(Frame).decode


def read_frame(message: bytes | str) -> Frame:
    """What the appliance said. A payload may hold numbers that only the slower decoder takes
    (1e400 is infinite there): a consumer that died of one would get it again and again."""
    try:
        return _frame(message)
    except msgspec.ValidationError:
        return msgspec.convert(json.loads(message, parse_int=_whole), Frame)


def _whole(digits: str) -> float:
    return float(digits) if len(digits) > DIGITS_MAX else int(digits)


_encode = msgspec.json.Encoder().encode


def envelope(type_: str, payload: Any, sender: str | None = None, **more: Any) -> Env:
    """A new envelope with an id and the time; `more` are further fields (tags, headers, …)."""
    now = datetime.now(UTC)
    made: Env = {
        "id": more.pop("id", None) or f"e-{random_id()}",
        "ts": f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03d}Z",
        "type": type_,
        "payload": payload,
    }
    if sender is not None:
        made["from"] = sender
    return {**made, **{name: value for name, value in more.items() if value is not None}}


class Producer:
    """Sends over one socket. Not thread-safe.

    `send` waits for the answer. `post` does not, and lets up to `window` envelopes wait for
    theirs; `flush` waits for all. After a break what has no answer yet is sent again: its id
    keeps it from being queued twice.
    """

    def __init__(self, locate: Locate, *, window: int = 1_000, attempts_max: int = 6) -> None:
        self._locate = locate
        self._window = min(window, WINDOW_MAX)
        self._attempts_max = attempts_max
        self._link: Link | None = None
        self._seq = 0
        self._unsent: list[tuple[int, bytes]] = []
        self._unsent_bytes = 0
        self._waiting: deque[tuple[int, str, bytes]] = deque()
        self._refused: list[EnvelopeRefused] = []

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, to: str, env: Env) -> str:
        """Returns the id once the appliance has it; raises EnvelopeRefused."""
        self.post(to, env)
        self.flush()
        return str(env["id"])

    def send_many(self, to: str, envelopes: Iterable[Env]) -> int:
        """How many; raises EnvelopeRefused for the first that was not taken."""
        count = 0
        for env in envelopes:
            self.post(to, env)
            count += 1
        self.flush()
        return count

    def post(self, to: str, env: Env) -> None:
        self._seq += 1
        frame = _encode({"seq": self._seq, "to": to, "envelope": env})
        self._waiting.append((self._seq, str(env["id"]), frame))
        self._unsent.append((self._seq, frame))
        self._unsent_bytes += len(frame)
        if len(self._unsent) >= FRAME_ENVELOPES or self._unsent_bytes > FRAME_BYTES_MAX // 2:
            self._insist(self._push)
        while len(self._waiting) >= self._window:
            self._insist(self._pull)

    def flush(self) -> None:
        """Waits for every answer; raises the first refusal."""
        while self._waiting:
            self._insist(self._pull)
        refused, self._refused = self._refused, []
        if refused:
            raise refused[0]

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _connected(self) -> Link:
        if self._link is None:
            self._link = Link(self._locate(), "/v1/publish")
            self._unsent = [(seq, frame) for seq, _, frame in self._waiting]
        return self._link

    def _insist(self, step: Callable[[], None]) -> None:
        for attempt in range(1, self._attempts_max + 1):
            try:
                step()
                return
            except (LinkBroken, HubNotRunning, StaleServerFile):
                self.close()
                if attempt == self._attempts_max:
                    raise
                time.sleep(pause_before(attempt))

    def _push(self) -> None:
        link = self._connected()
        while self._unsent:
            some = self._unsent[:FRAME_ENVELOPES]
            frames: list[bytes] = []
            size = 0
            for _, frame in some:
                if frames and size + len(frame) > FRAME_BYTES_MAX:
                    break
                frames.append(frame)
                size += len(frame)
            link.send(frames[0] if len(frames) == 1 else b"[" + b",".join(frames) + b"]")
            self._unsent = self._unsent[len(frames) :]
        self._unsent_bytes = 0

    def _pull(self) -> None:
        self._push()
        messages = self._connected().receive(ANSWER_SECONDS_MAX)
        if not messages:
            raise LinkBroken("the appliance does not answer")
        for message in messages:
            frame = read_frame(message)
            if frame.error is not None:
                self._refuse(frame.error)
            elif frame.accepted is not None:
                while self._waiting and self._waiting[0][0] <= frame.accepted:
                    self._waiting.popleft()

    def _refuse(self, problem: Problem) -> None:
        for place, (seq, id_, _) in enumerate(self._waiting):
            if problem.seq == seq:
                self._refused.append(EnvelopeRefused(problem, id_))
                for _ in range(min(problem.count, len(self._waiting) - place)):
                    del self._waiting[place]
                return
        raise EnvelopeRefused(problem)


class Delivery:
    """An envelope in our hands until it is acked, nacked, or its lease ends."""

    __slots__ = ("_consumer", "attempt", "envelope", "id")

    def __init__(self, consumer: "Consumer", env: Env, attempt: int) -> None:
        self._consumer = consumer
        self.envelope = env
        self.attempt = attempt
        self.id = str(env["id"])

    def ack(self) -> None:
        self._consumer.settle(self.id)

    def nack(self, mode: str = "fail", delay_ms: int | None = None, error: str = "") -> None:
        self._consumer.refuse(self.id, mode, delay_ms, error)

    def extend(self, lease_ms: int | None = None) -> None:
        self._consumer.extend([self.id], lease_ms)


class Consumer:
    """Receives from one stream or a pattern, for ever. Read by one thread.

    `credit` is how many it will hold at once; `batch` how many may come in one frame.
    """

    def __init__(
        self,
        locate: Locate,
        stream: str,
        *,
        credit: int = 100,
        batch: int = 100,
        lease_ms: int | None = None,
        name: str = "",
        say: Callable[[str], None] = lambda _: None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._locate = locate
        self._credit = credit
        self._lease_ms = lease_ms
        self._say = say
        self._pause = pause
        query: dict[str, Any] = {"stream": stream, "credit": credit, "batch": min(batch, BATCH_MAX)}
        if lease_ms is not None:
            query["leaseMs"] = lease_ms
        if name:
            query["name"] = name
        self._path = "/v1/subscribe?" + urlencode(query)
        self._link: Link | None = None
        self._acks: list[str] = []
        self._spent = 0
        self._held: set[str] = set()
        self._ready: deque[tuple[Env, int]] = deque()  # came, and not given to anybody yet
        self._lock = threading.Lock()
        self._handler: Callable[[Env], Any] | None = None
        self._stop = threading.Event()

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Delivery]:
        for delivery in self.deliveries():
            if delivery is not None:
                yield delivery

    def deliveries(self, idle_seconds: float | None = None) -> Iterator[Delivery | None]:
        """Deliveries; None whenever nothing came for `idle_seconds`. Ends after `stop`.

        The first connection must succeed; later ones are tried for ever.
        """
        attempt, connected = 0, False
        while not self._stop.is_set():
            try:
                self._open()
                connected, attempt = True, 0
                yield from self._session(idle_seconds)
            except (LinkBroken, HubNotRunning, StaleServerFile) as error:
                self.close()
                if not connected:
                    raise
                attempt += 1
                seconds = pause_before(attempt)
                self._say(f"{error.message}; connecting again in {seconds:.1f} s")
                self._pause(seconds)

    def handler(self, function: Callable[[Env], Any]) -> Callable[[Env], Any]:
        """Decorator: what `run` calls for every envelope."""
        self._handler = function
        return function

    def run(self, handler: Callable[[Env], Any] | None = None) -> None:
        """Ack what the handler returns from, nack what it raises for; for ever, or until
        `stop`. While it works, the lease is renewed by another thread."""
        work = handler or self._handler
        if work is None:
            raise ValueError("run() needs a handler")
        with Renewal(self.renew, self._lease_ms or DEFAULT_LEASE_MS):
            for delivery in self:
                try:
                    work(delivery.envelope)
                except Exception as error:
                    self._say(f"{delivery.id} failed: {type(error).__name__}")
                    delivery.nack(error=type(error).__name__)
                else:
                    delivery.ack()

    def stop(self) -> None:
        """From a handler or a signal: no more deliveries after this one."""
        self._stop.set()

    def close(self) -> None:
        """What is held returns to the stream at once."""
        with self._lock:
            link, self._link = self._link, None
            acks, self._acks = self._acks, []
            self._held.clear()
            self._ready.clear()
            self._spent = 0
        if link is not None:
            try:
                for at in range(0, len(acks), BATCH_MAX):
                    link.send(_encode({"ack": acks[at : at + BATCH_MAX]}))
            except LinkBroken:
                pass  # they will be delivered again
            link.close()

    # -- what deliveries call ---------------------------------------------------------

    def settle(self, id_: str) -> None:
        """Ack, together with others: at half the credit, or before the next wait."""
        with self._lock:
            self._held.discard(id_)
            self._acks.append(id_)
            self._spent += 1
        if self._spent * 2 >= self._credit:
            self.flush()

    def refuse(self, id_: str, mode: str, delay_ms: int | None, error: str) -> None:
        said: dict[str, Any] = {"nack": id_, "mode": mode, "error": error[:1000]}
        if delay_ms is not None:
            said["delayMs"] = delay_ms
        with self._lock:
            self._held.discard(id_)
            self._spent += 1
        self._tell(said)

    def extend(self, ids: Sequence[str], lease_ms: int | None = None) -> None:
        said: dict[str, Any] = {"extend": list(ids)}
        if lease_ms is not None or self._lease_ms is not None:
            said["leaseMs"] = lease_ms or self._lease_ms
        self._tell(said)

    def renew(self) -> None:
        """Extend everything that is held."""
        with self._lock:
            held = list(self._held)
        for at in range(0, len(held), BATCH_MAX):
            self.extend(held[at : at + BATCH_MAX])

    def flush(self) -> None:
        with self._lock:
            acks, self._acks = self._acks, []
            spent, self._spent = self._spent, 0
        for at in range(0, len(acks), BATCH_MAX):
            self._tell({"ack": acks[at : at + BATCH_MAX]})
        if spent:
            self._tell({"credit": spent})

    # -- inside -------------------------------------------------------------------------

    def _open(self) -> Link:
        if self._link is None:
            self._link = Link(self._locate(), self._path)
        return self._link

    def _session(self, idle_seconds: float | None) -> Iterator[Delivery | None]:
        while not self._stop.is_set():
            while self._ready:  # also what an iteration that was broken off has left
                yield Delivery(self, *self._ready.popleft())
                if self._stop.is_set():
                    return
            link = self._open()
            self.flush()
            messages = link.receive(idle_seconds if idle_seconds is not None else 1.0)
            if not messages and idle_seconds is not None:
                yield None
            for message in messages:
                self._ready += self._delivered(message)

    def _delivered(self, message: bytes) -> list[tuple[Env, int]]:
        frame = read_frame(message)
        if frame.error is not None:
            if is_final(frame.error):
                raise EnvelopeRefused(frame.error)
            self._say(f"{frame.error.id or ''} {frame.error.message}".strip())
            return []
        if frame.deliver is None:
            return []
        found = frame.deliver if isinstance(frame.deliver, list) else [frame.deliver]
        with self._lock:
            self._held.update(str(env["id"]) for env in found)
        return [(env, frame.attempt) for env in found]

    def _tell(self, said: dict[str, Any]) -> None:
        link = self._link
        if link is None:
            return  # the lease is void already
        try:
            link.send(_encode(said))
        except LinkBroken:
            self._say("the connection broke; what was held will be delivered again")


class Renewal:
    """Calls `renew` at a third of the lease, in a thread, while its block runs."""

    def __init__(self, renew: Callable[[], None], lease_ms: int) -> None:
        self._renew = renew
        self._seconds = min(lease_ms / 3000, RENEW_SECONDS_MAX)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._turn, name="lease renewal", daemon=True)

    def __enter__(self) -> "Renewal":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(5)

    def _turn(self) -> None:
        while not self._end.wait(self._seconds):
            try:
                self._renew()
            except Unavailable:
                continue  # the reading thread connects again


def is_final(problem: Problem) -> bool:
    """Would the same subscription be refused again, however often it is tried?"""
    if problem.id is not None:
        return False
    return problem.code in (401, 403, 404) or problem.name == "CREDIT_TOO_HIGH"


def pause_before(attempt: int) -> float:
    doubled = FIRST_PAUSE_SECONDS * 2 ** min(attempt - 1, 10)
    return float(min(doubled, LONGEST_PAUSE_SECONDS) * random.uniform(0.75, 1.25))
