"""Implements the worker bus verbs: publish, poll and wait, claims, heartbeats, workers.

Programs beside the appliance write the file too. While somebody waits, the watcher (`loops.py`)
notices their commits, so that a wait ends for both kinds of writers.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from appliance.bus import metrics, queries, wire, writes
from appliance.busfile import claims, heartbeats, messages, search, workers
from appliance.busfile.blobs import INLINE_BYTES_MAX
from appliance.busfile.claims import BusClaim, ClaimHeld
from appliance.busfile.file import BusPaths
from appliance.busfile.messages import NewMessage, Published
from appliance.busfile.workers import State, UnknownTask, WorkerStatus
from appliance.kernel import caller
from appliance.kernel.auth import ADMIN, Principal, check_sender
from appliance.kernel.caller import WaitLimit, is_there
from appliance.kernel.clock import Clock
from appliance.kernel.errors import check_cursor
from appliance.kernel.feed import Feed, FeedSubscription
from appliance.kernel.store import Store
from appliance.kernel.store_errors import StoreAbsent
from appliance.kernel.threads import in_thread
from appliance.kernel.wakeup import Wakeup

WAITING_MAX = 1000  # long polls and waits for claims; each holds a connection
STREAMS_MAX = 100


def check_agent(who: Principal, command: Any) -> Any:
    """Return `command` if the caller may act as the named agent. A token without sender names acts
    under its own name, and one with `admin` under any. Raises SenderNotAllowed."""
    names = who.senders or (None if who.allows(ADMIN) else frozenset({who.name}))
    named = [getattr(command, field, None) for field in ("from_agent", "agent", "actor")]
    check_sender(next(filter(None, named)), names)
    return command


def as_agent(verb: Callable[[Any], Any]) -> Callable[[Any, Principal], Any]:
    """Return the verb for callers that may act as the agent that their request names."""
    return lambda command, who: verb(check_agent(who, command))


class BusFeed(Feed):
    """This appliance's messages, in number order. Other programs may have published in between:
    then every listener reads the table."""

    @property
    def has_readers(self) -> bool:
        return bool(self._subscriptions)

    def publish(self, items: list[wire.BusItem]) -> None:
        if items[0].number == self.head + 1:
            super().publish(items)
        else:
            self.jump(items[-1].number)


class Bus:
    def __init__(
        self, store: Store, feed: BusFeed, paths: BusPaths, clock: Clock,
        count_claim: Callable[[str], None] | None = None,
    ) -> None:  # fmt: skip
        self.feed = feed
        self.paths = paths
        self.polls = WaitLimit(WAITING_MAX, wire.TooManyBusWaits)
        self.streams = WaitLimit(STREAMS_MAX, wire.TooManyBusStreams)
        self.awaited = Wakeup()  # set when somebody begins to wait
        self.commits = BusFeed()  # wakes callers that wait for a claim
        self._store = store
        self._clock = clock
        self._count_claim = count_claim

    @property
    def waiting(self) -> bool:
        """Return whether another program's commit must be noticed soon."""
        return self.feed.has_readers or self.commits.has_readers

    def note_commit(self, head: int) -> None:
        """Note a commit on any connection; `head` is the newest message's number."""
        if head > self.feed.head:
            self.feed.jump(head)
        self.commits.jump(head)

    def close(self) -> None:
        """End all waits and streams."""
        self.feed.close()
        self.commits.close()

    # -- messages ----------------------------------------------------------------------------

    def publish(self, command: wire.PublishBusMessage, key: str | None = None) -> Published:
        """Publish a message. `key`: the id, if the message has none."""
        fields = {**msgspec.structs.asdict(command), "id": command.id or key}
        message = NewMessage(**{name: value for name, value in fields.items() if value is not None})
        published: Published = self._store.write(writes.publish, self._with_blob(message))
        metrics.published.inc(int(not published.duplicate))
        return published

    def _with_blob(self, message: NewMessage) -> NewMessage:
        """Return the message to publish. A blob is written in a thread, because the write waits
        for the disk."""
        message = msgspec.structs.replace(message, traceparent=caller.traceparent())
        if len(msgspec.json.encode(message.payload)) > INLINE_BYTES_MAX:
            return in_thread(messages.with_blob, self.paths.blobs, message)
        return messages.with_blob(self.paths.blobs, message)

    def poll(self, query: wire.BusPollQuery) -> wire.BusMessages:
        """Return an agent's next messages; wait for the first one if `query.wait` is set."""
        page = self._page(query)
        check_cursor(query.after or 0, page.head)
        seconds = min(query.wait, wire.WAIT_SECONDS_MAX)
        if page.messages or seconds <= 0:
            return page
        with self._wait_on(self.feed, "poll", query.agent) as subscription:
            deadline = self._clock.monotonic() + seconds
            while True:
                # Messages published before the subscription began are in the table.
                page = self._page(query)
                left = deadline - self._clock.monotonic()
                if page.messages or left <= 0 or self.feed.closed or not is_there():
                    return page
                subscription.wait(left)
                subscription.renew()

    def _page(self, query: wire.BusPollQuery) -> wire.BusMessages:
        return self.read_after(query.agent, query.after, query.limit)

    @contextmanager
    def _wait_on(
        self, feed: Feed, kind: str, agent: str | None = None
    ) -> Iterator[FeedSubscription]:
        with ExitStack() as ending:
            subscription = self.listen(feed, agent)
            ending.callback(feed.unsubscribe, subscription)
            ending.callback(self.polls.enter(subscription.wake))
            ending.enter_context(metrics.sessions.labels(kind).track_inprogress())
            yield subscription

    def listen(self, feed: Feed, agent: str | None = None) -> FeedSubscription:
        """Subscribe to one of both feeds, for an agent or all. A subscription wakes a table
        reader."""
        self.awaited.set()
        return feed.subscribe(1, lambda item: item.concerns(agent))

    def read_after(
        self, agent: str | None, after: int | None, limit: int = messages.POLL_MAX
    ) -> wire.BusMessages:
        """Return stored messages, for the agent or all."""
        page = (self.paths.blobs, agent, after, limit)
        absent = self._head_without_file(after or 0)
        return wire.BusMessages(*self._read_or(([], absent), queries.poll, *page))

    def head(self, cursor: int = 0) -> int:
        """Return the newest message's number. While a removed file has no successor, which will
        continue the numbers, return `cursor`; without any file, 0."""
        number: int = self._read_or(self._head_without_file(cursor), messages.head)
        return number

    def _head_without_file(self, cursor: int) -> int:
        return cursor if self.paths.last_file.exists() else 0

    def search(self, query: wire.BusSearchQuery) -> wire.BusMessages:
        """Return messages with all words, newest first."""
        search.index_new(self._store.write)
        rows = self._store.read_slow(search.find, query.q, query.limit)
        return wire.BusMessages(rows, self.head())

    def ack(self, command: wire.BusAck) -> wire.BusCursor:
        seq = self._store.write(writes.now, messages.ack, command.agent, command.seq)
        return wire.BusCursor(command.agent, seq)

    # -- claims ------------------------------------------------------------------------------

    def claim(self, command: wire.ClaimTask, key: str | None = None) -> BusClaim:
        """Take a claim; wait for it if `command.wait` is set. A repetition with a known `key`
        returns the first claim. Raises ClaimHeld."""
        deadline = self._clock.monotonic() + min(command.wait, wire.WAIT_SECONDS_MAX)
        try:
            return self._try_claim(command, key)
        except ClaimHeld:
            if command.wait <= 0:
                raise
        with self._wait_on(self.commits, "claim") as subscription:
            while True:
                subscription.renew()
                try:
                    return self._try_claim(command, key)
                except ClaimHeld as held:
                    left = deadline - self._clock.monotonic()
                    if left <= 0 or self.commits.closed or not is_there():
                        raise
                    # A lease ends without a commit.
                    lease_left = (held.details["lease_until_ms"] - self._clock.now_ms()) / 1000
                    subscription.wait(max(0.01, min(left, lease_left)))

    def _try_claim(self, command: wire.ClaimTask, key: str | None) -> BusClaim:
        lease_ms = int(command.lease_seconds * 1000)
        try:
            taken: BusClaim = self._store.write(
                writes.now, claims.claim, command.task, command.agent, lease_ms, key
            )
        except ClaimHeld:
            metrics.claims.labels("held").inc()
            raise
        metrics.claims.labels("claimed").inc()
        if self._count_claim is not None:
            self._count_claim(command.agent)
        return taken

    def renew(self, command: wire.RenewClaim) -> BusClaim:
        lease_ms = int(command.lease_seconds * 1000)
        renewed: BusClaim = self._store.write(
            writes.now, claims.renew, command.task, command.agent, command.fence, lease_ms
        )
        return renewed

    def release(self, command: wire.ReleaseClaim) -> wire.Released:
        released = self._store.write(claims.release, command.task, command.agent, command.fence)
        return wire.Released(released)

    def complete(self, command: wire.CompleteTask) -> Published:
        """Publish task_done and release the claim, in one commit. Raises ClaimLost."""
        message = NewMessage(
            from_agent=command.agent, type="task_done", correlation_id=command.task,
            payload=command.payload,
        )  # fmt: skip
        message = self._with_blob(message)
        published: Published = self._store.write(writes.complete, message, command.fence)
        return published

    def claims(self) -> wire.Claims:
        return wire.Claims(self._read_or([], queries.all_claims, self._clock.now_ms()))

    # -- workers -----------------------------------------------------------------------------

    def beat(self, command: wire.Beat) -> wire.Beaten:
        fields = (command.agent, command.status, command.task, command.progress)
        ts_ms = self._store.write(writes.now, heartbeats.beat, *fields)
        return wire.Beaten(command.agent, ts_ms)

    def workers(self, query: wire.WorkersQuery) -> wire.Workers:
        return wire.Workers(self._rows(None, query.state))

    def worker(self, task: str) -> WorkerStatus:
        """Return a task's worker. Raises UnknownTask."""
        if rows := self._rows(task):
            return rows[0]
        raise UnknownTask(f"there is no worker for the task {task}", details={"task": task})

    def _rows(self, task: str | None, state: State | None = None) -> list[WorkerStatus]:
        rows: list[WorkerStatus] = self._read_or(
            [], workers.status_rows, self._clock.now_ms(), task, state
        )
        return rows

    def change_state(self, task: str, command: wire.ChangeState, who: Principal) -> WorkerStatus:
        """Change a worker's state. Repeating a change is harmless. Raises StateNotAllowed."""
        check_agent(who, command)
        change = (command.from_state, command.to, command.actor, who.allows(wire.APPROVE))
        try:
            self._store.write(writes.change_state, task, *change)
        except workers.StaleState as stale:
            if stale.details["state"] != command.to:
                raise
        return self.worker(task)

    def _read_or(self, empty: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return `function`'s result; `empty` as long as there is no file."""
        try:
            return self._store.read(function, *arguments)
        except StoreAbsent:
            return empty
