"""An agent on the worker bus: on the bus file without a server, or over HTTP, with equal methods.

    with FileBus("ada") as bus:                            # or HttpBus("ada", url=…, token=…)
        claim = bus.claim("task-7", wait=60)
        bus.publish("task_progress", {"progress": 0.5}, task="task-7")
        bus.release("task-7", claim.fence)

All methods may be called from any thread. Both raise the errors in `appliance/busfile`.
"""

import random
import threading
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from appliance.busfile import claims, consumer, heartbeats, messages, workers
from appliance.busfile.claims import LEASE_MS, BusClaim, ClaimHeld, ClaimLost
from appliance.busfile.file import changing, find_paths
from appliance.busfile.heartbeats import HeartbeatThread, Status
from appliance.busfile.messages import (
    POLL_MAX,
    BusMessage,
    MessageIdReused,
    NewMessage,
    Published,
)
from appliance.busfile.retention import AgentLags
from appliance.busfile.reviews import OwnReview
from appliance.busfile.workers import (
    InvalidTransition,
    StaleState,
    State,
    UnknownTask,
    WorkerStatus,
)
from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import ApplianceError, Unavailable
from appliance.kernel.retry import delay_seconds
from appliance.sdk.closing import Closing
from appliance.sdk.errors import HubBusy, RateLimited, Refused
from appliance.sdk.http import (
    BACKOFF,
    REQUEST_WAIT_SECONDS_MAX,
    ClientClosed,
    HubClient,
    HubConnections,
    Json,
)
from appliance.sdk.plain_handler import require_done, require_plain
from appliance.sdk.target import HubTarget

ERRORS: dict[str, type[ApplianceError]] = {
    kind.code: kind
    for kind in (
        AgentLags, ClaimHeld, ClaimLost, InvalidTransition, MessageIdReused, OwnReview, StaleState,
        UnknownTask,
    )
}  # fmt: skip
T = TypeVar("T")


class BusAgent(Closing):
    """The methods that both kinds of agents share."""

    def __init__(self, agent: str) -> None:
        self.agent = messages.check_name("agent", agent)
        self._clock = SystemClock()

    def publish(
        self,
        type: str,  # noqa: A002
        payload: Any = None,
        *,
        to: str | None = None,
        task: str | None = None,
        reply_to: str | None = None,
        id: str | None = None,  # noqa: A002
    ) -> Published:
        """Publish to one agent, or to all without `to`; once per `id`."""
        return self._publish(
            NewMessage(
                from_agent=self.agent, type=type, to_agent=to, correlation_id=task,
                in_reply_to=reply_to, payload=payload, **({"id": id} if id else {}),
            )
        )  # fmt: skip

    @abstractmethod
    def _publish(self, message: NewMessage) -> Published: ...

    @abstractmethod
    def poll(self, limit: int = POLL_MAX, wait: float = 0.0) -> list[BusMessage]:
        """Return messages behind the cursor, or the first that comes within `wait` seconds."""

    @abstractmethod
    def ack(self, seq: int) -> int:
        """Report this message and all before it as handled. Returns the cursor."""

    @abstractmethod
    def follow(self, after: int | None = None, *, every: bool = False) -> Generator[BusMessage]:
        """Yield messages after the number `after` (default: new ones only), until `close`. With
        `every`, also messages to other agents. Nothing is acked: keep `seq`."""

    @abstractmethod
    def beat(
        self, status: Status = "working", task: str | None = None, progress: float | None = None
    ) -> None:
        """Send one heartbeat."""

    def heartbeat(self, status: Status = "working", task: str | None = None) -> HeartbeatThread:
        """Send a heartbeat every ten seconds, from a thread, until a `with` block ends."""
        return HeartbeatThread(self.beat, status, task)

    def consume(
        self, handler: Callable[[BusMessage], object], *, wait: float = REQUEST_WAIT_SECONDS_MAX
    ) -> int:
        """Handle one batch: ack each message after its handler. Returns how many.

        A handler's exception ends the batch, and its message comes again: a later message's ack
        would cover both. Handlers must be idempotent, for example by `message.id`.
        """
        require_plain(handler)
        batch = self.poll(wait=wait)
        for message in batch:
            require_done(handler(message))
            self.ack(message.seq)
        return len(batch)


class FileBus(BusAgent):
    """An agent that works on the file. Every call uses a new connection."""

    def __init__(self, agent: str, workspace: Path | str | None = None) -> None:
        super().__init__(agent)
        self.paths = find_paths(None if workspace is None else Path(workspace))
        self._closed = threading.Event()

    def close(self) -> None:
        """End waits. Any thread may call it."""
        self._closed.set()

    def _publish(self, message: NewMessage) -> Published:
        message = messages.with_blob(self.paths.blobs, message)
        return self._write(messages.publish, self._clock.now_ms(), message)

    def poll(self, limit: int = POLL_MAX, wait: float = 0.0) -> list[BusMessage]:
        return consumer.poll(self.paths, self._clock, self.agent, limit, wait, self._pause)

    def follow(self, after: int | None = None, *, every: bool = False) -> Generator[BusMessage]:
        agent = None if every else self.agent
        with suppress(ClientClosed):
            after = self._write(messages.head) if after is None else after
            yield from consumer.follow(self.paths, agent, after, self._pause)

    def ack(self, seq: int) -> int:
        return self._write(messages.ack, self._clock.now_ms(), self.agent, seq)

    def claim(self, task: str, *, wait: float = 0.0, lease_ms: int = LEASE_MS) -> BusClaim:
        """Claim, or wait for the claim. Raises ClaimHeld."""
        return claims.wait(
            self.paths, self._clock, wait,
            lambda connection, now: claims.claim(connection, now, task, self.agent, lease_ms),
            self._pause,
        )  # fmt: skip

    def renew(self, task: str, fence: int | None = None, lease_ms: int = LEASE_MS) -> BusClaim:
        """Begin a new lease. Raises ClaimLost."""
        return self._write(claims.renew, self._clock.now_ms(), task, self.agent, fence, lease_ms)

    def release(self, task: str, fence: int | None = None) -> bool:
        """End the claim; False if nobody had it. Raises ClaimLost."""
        return self._write(claims.release, task, self.agent, fence)

    def beat(
        self, status: Status = "working", task: str | None = None, progress: float | None = None
    ) -> None:
        heartbeats.write(self.paths, self.agent, status, task, progress)

    def status(self, state: State | None = None) -> list[WorkerStatus]:
        """Return workers and their states, oldest first."""
        return self._write(workers.status_rows, self._clock.now_ms(), state=state)

    def transition(self, task: str, before: State, after: State) -> None:
        """Change a state if it still is `before`. Raises StaleState, InvalidTransition."""
        now_ms = self._clock.now_ms()
        self._write(workers.transition, now_ms, task, before, after, actor=self.agent)

    def _pause(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise ClientClosed

    def _write(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        with changing(self.paths) as connection:
            return function(connection, *arguments, **options)


class HttpBus(BusAgent):
    """An agent that uses an appliance, with FileBus methods. Takes `HubTarget` arguments for its
    address."""

    def __init__(self, agent: str, *target: Any, **options: Any) -> None:
        super().__init__(agent)
        self._hubs = HubConnections(HubTarget(*target, **options).locate)

    def close(self) -> None:
        self._hubs.close()

    def _publish(self, message: NewMessage) -> Published:
        body = msgspec.structs.asdict(message)
        del body["payload_ref"]  # the appliance makes the blob
        return msgspec.convert(self._send("messages", body), Published)

    def poll(self, limit: int = POLL_MAX, wait: float = 0.0) -> list[BusMessage]:
        deadline = self._clock.monotonic() + wait
        while True:
            left = max(0.0, deadline - self._clock.monotonic())
            seconds = min(left, REQUEST_WAIT_SECONDS_MAX)
            page = self._get("messages", agent=self.agent, limit=limit, wait=seconds)
            if page["messages"] or left <= seconds:
                return msgspec.convert(page["messages"], list[BusMessage])

    def follow(self, after: int | None = None, *, every: bool = False) -> Generator[BusMessage]:
        """Yield messages; connect again after a break, also if the appliance restarts."""
        after = self._get("messages", agent=self.agent, limit=1)["head"] if after is None else after
        path = "/bus/v1/stream" + ("" if every else "?" + urlencode({"agent": self.agent}))
        failures = 0
        while True:
            try:
                with self._hub() as hub, closing(hub.lines(path, str(after))) as lines:
                    for message in filter(None, map(_message, lines)):
                        yield message
                        after, failures = message.seq, 0
            except ClientClosed:
                return
            except (Unavailable, HubBusy, RateLimited):
                failures += 1
            self._hubs.pause(delay_seconds(BACKOFF, failures, random.random()))

    def ack(self, seq: int) -> int:
        return int(self._post("acks", seq=seq)["last_acked_seq"])

    def claim(self, task: str, *, wait: float = 0.0, lease_ms: int = LEASE_MS) -> BusClaim:
        deadline = self._clock.monotonic() + wait
        body = {"task": task, "lease_seconds": lease_ms / 1000}
        while True:
            left = max(0.0, deadline - self._clock.monotonic())
            seconds = min(left, REQUEST_WAIT_SECONDS_MAX)
            try:
                return msgspec.convert(self._post("claims", **body, wait=seconds), BusClaim)
            except ClaimHeld:
                if left <= seconds:
                    raise

    def renew(self, task: str, fence: int | None = None, lease_ms: int = LEASE_MS) -> BusClaim:
        body = {"task": task, "fence": fence, "lease_seconds": lease_ms / 1000}
        return msgspec.convert(self._post("claims/renew", **body), BusClaim)

    def release(self, task: str, fence: int | None = None) -> bool:
        return bool(self._post("claims/release", task=task, fence=fence)["released"])

    def beat(
        self, status: Status = "working", task: str | None = None, progress: float | None = None
    ) -> None:
        self._post("heartbeats", status=status, task=task, progress=progress)

    def status(self, state: State | None = None) -> list[WorkerStatus]:
        return msgspec.convert(self._get("workers", state=state)["workers"], list[WorkerStatus])

    def transition(self, task: str, before: State, after: State) -> None:
        body = {"from": before, "to": after, "actor": self.agent}
        self._send(f"workers/{quote(task, safe='')}/state", body)

    def _get(self, path: str, **query: Any) -> Json:
        with self._hub() as hub:
            return hub.get(f"/bus/v1/{path}", **query)

    def _post(self, path: str, **fields: Any) -> Json:
        return self._send(path, {"agent": self.agent, **fields})

    def _send(self, path: str, body: Json) -> Json:
        with self._hub() as hub:
            return hub.post(f"/bus/v1/{path}", body)

    @contextmanager
    def _hub(self) -> Iterator[HubClient]:
        """Yield a connection for the block's exclusive use, with the bus errors."""
        try:
            with self._hubs.lend() as hub:
                yield hub
        except Refused as error:
            kind = ERRORS.get(error.answer_code)
            if kind is None:
                raise
            raise kind(error.message, details=error.details, hint=error.hint) from None


def _message(line: bytes) -> BusMessage | None:
    """Return the message in a server-sent events line, if it has arrived whole."""
    return _decode(line[5:]) if line.startswith(b"data:") and line.endswith(b"\n") else None


_decode = msgspec.json.Decoder(BusMessage).decode
