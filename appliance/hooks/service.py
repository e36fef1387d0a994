"""Hooks: who is called for an event, in which room, and what it may send afterwards."""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from appliance.hooks import listings, matching, metrics, wire, writes
from appliance.hooks.settings import HookCommand, HookSettings
from appliance.inbox.event import Event
from appliance.inbox.wire import InboxMessage
from appliance.kernel.auth import Principal, TokenBook
from appliance.kernel.clock import Clock, iso
from appliance.kernel.config import BadSettings
from appliance.kernel.errors import ApplianceError
from appliance.kernel.ids import random_id, secret_token
from appliance.kernel.log import Log
from appliance.kernel.store import Store
from appliance.kernel.subprocess_runner import Ran, run
from appliance.kernel.wakeup import Signal

PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER")
TRUNCATED_ROOM = 2048


class Order(msgspec.Struct, frozen=True):
    """A message that a hook wants sent."""

    mesh: str
    to: str
    message: str
    client_message_id: str
    reply_to_id: str | None = None
    meta: dict[str, Any] | None = None


SendOrder = Callable[[Order], None]
"""Has it accepted by the outbox; raises an ApplianceError when it is refused."""


class Job(NamedTuple):
    id: str
    command: HookCommand
    event: str
    mesh: str
    message: InboxMessage | None
    data: bytes


class Grant(msgspec.Struct):
    """`asked`: for how many sends so far, whatever became of them."""

    run_id: str
    mesh: str
    scopes: tuple[str, ...]
    message: InboxMessage
    until_ms: int
    asked: int = 0


class Hooks:
    """`url` tells where this appliance answers; `own` our key and names in a mesh."""

    def __init__(
        self,
        settings: HookSettings,
        store: Store,
        book: TokenBook,
        clock: Clock,
        log: Log,
        folder: Path,
        environment: Mapping[str, str],
        *,
        off_in_ci: bool,
        own: Callable[[str], Collection[str]],
        url: Callable[[], str],
        announce: Callable[..., None],
        send: SendOrder | None = None,
    ) -> None:
        check(settings)
        self.settings = settings
        self.send = send
        self.signal = Signal()
        self._store = store
        self._book = book
        self._clock = clock
        self._log = log
        self._folder = folder
        self._environment = {name: environment[name] for name in PASSED_ON if environment.get(name)}
        self._own = own
        self._url = url
        self._announce = announce
        self._queue: deque[Job] = deque()
        self._grants: dict[str, Grant] = {}
        self.enabled = bool(settings.commands) and is_on(settings, off_in_ci, log)
        metrics.waiting.set_function(lambda: len(self._queue))

    def hear(self, event: Event) -> None:
        """Called for every event, on the loop, after its commit. Waits for nothing."""
        if not self.enabled or event.name == "hook_executed":
            return
        if event.message is not None and event.message.own and not self.settings.own:
            return
        if event.message is not None and self._went_round(event.message):
            return
        self._offer(matching.names_of(event, self._own(event.mesh)), event)

    def _went_round(self, message: InboxMessage) -> bool:
        """Two hooks that answer each other would do so for ever."""
        if matching.hops(message.meta) < self.settings.hops_max:
            return False
        metrics.runs.labels("none", "hops").inc()
        self._log.warning("a message came from too many hooks; none is called", id=message.id)
        return True

    def start_up(self, mesh: str) -> None:
        if self.enabled:
            data = msgspec.json.encode({"mesh": mesh})
            self._offer(["on-startup"], Event(0, "startup", mesh, data))

    def _offer(self, names: list[str], event: Event) -> None:
        for command in self.settings.commands:
            if not matching.wants(command, names, event.mesh):
                continue
            if len(self._queue) >= self.settings.queue_max:
                metrics.runs.labels(matching.label(command.on), "dropped").inc()
                self._log.warning("a run of a hook was dropped: too many wait", hook=command.on)
                continue
            self._queue.append(
                Job(
                    f"run_{random_id()}", command, event.name, event.mesh, event.message, event.data
                )
            )
            self.signal.set()

    def take(self) -> Job | None:
        return self._queue.popleft() if self._queue else None

    # -- one run -----------------------------------------------------------------------------

    def work(self, job: Job) -> str:
        """Runs it to its end; how that was."""
        scopes = matching.granted(job.command, job.message)
        until_ms = self._clock.now_ms() + int(self.settings.grant_seconds * 1000)
        text, truncated = self._text(job, scopes, until_ms)
        inbox_id = None if job.message is None else job.message.id
        self._store.write(
            writes.begin, job.id, job.command.on, job.event, job.mesh, inbox_id, truncated
        )
        environment = self._room(job, scopes, until_ms)
        if job.command.network_policy == "deny":
            metrics.unenforceable.inc()
        ran = run(
            job.command.run,
            text,
            environment,
            folder=self._folder,
            seconds_max=self.settings.seconds_max,
            kill_after_seconds=self.settings.kill_after_seconds,
            said_bytes_max=self.settings.said_bytes_max,
            clock=self._clock,
        )
        outcome = outcome_of(ran)
        if outcome == "ok":
            self._heed(job, scopes, ran)
        self._store.write(
            writes.end, job.id, outcome, ran.code, int(ran.seconds * 1000), len(ran.said)
        )
        hook = matching.label(job.command.on)
        metrics.runs.labels(hook, outcome).inc()
        metrics.seconds.labels(hook).observe(ran.seconds)
        if outcome != "ok":
            self._log.warning(
                "a hook did not succeed", hook=hook, run=job.id, outcome=outcome, code=ran.code
            )
        self._announce(
            "hook_executed", job.mesh, run=job.id, hook=job.command.on, outcome=outcome,
            exit_code=ran.code, inbox_id=inbox_id,
        )  # fmt: skip
        return outcome

    def _text(self, job: Job, scopes: tuple[str, ...], until_ms: int) -> tuple[bytes, bool]:
        """What the hook reads; over the limit the message's body is cut, and then the meta goes."""
        what = {
            "run": job.id, "hook": job.command.on, "event": job.event, "mesh": job.mesh,
            "scopes": list(scopes), "until": iso(until_ms), "data": msgspec.Raw(job.data),
        }  # fmt: skip
        text = msgspec.json.encode(what)
        most = self.settings.event_bytes_max
        if len(text) <= most or job.message is None:
            return text, False
        room = max(0, (most - TRUNCATED_ROOM) // 6)  # a character may take six bytes of JSON
        short = msgspec.structs.replace(
            job.message, body=(job.message.body or "")[:room], meta=None
        )
        return msgspec.json.encode({**what, "data": short, "_truncated": True}), True

    def _room(self, job: Job, scopes: tuple[str, ...], until_ms: int) -> dict[str, str]:
        """The environment of a run: nothing of ours but what its grant opens."""
        room = {**self._environment, "AGENTLIP_HOOK": job.command.on, "AGENTLIP_RUN": job.id}
        if scopes and job.message is not None:
            secret = secret_token()
            principal = Principal(job.id, "hook", frozenset({wire.ACT}), until_ms=until_ms)
            self._grants[job.id] = Grant(job.id, job.mesh, scopes, job.message, until_ms)
            self._book.lend(secret, principal, self.settings.grants_max)
            while len(self._grants) > self.settings.grants_max:
                del self._grants[next(iter(self._grants))]
            room |= {"AGENTLIP_URL": self._url(), "AGENTLIP_HOOK_TOKEN": secret}
        return room

    def _heed(self, job: Job, scopes: tuple[str, ...], ran: Ran) -> None:
        """`{"reply": "…"}` on standard output is an answer, where that is granted."""
        reply = reply_in(ran.said)
        if reply is None or job.message is None:
            return
        if matching.REPLY not in scopes:
            self._note(job.id, matching.REPLY, "refused", None)
            return
        # The one that its token opens, so that a reply counts with what was asked for by that.
        grant = self._grants.get(job.id) or Grant(
            job.id, job.mesh, scopes, job.message, self._clock.now_ms() + 1
        )
        try:
            self._act(grant, matching.REPLY, reply, None)
        except ApplianceError as error:
            self._log.warning("a hook's reply was not sent", run=job.id, code=error.code)

    # -- acts by a grant -----------------------------------------------------------------------

    def act(self, who: Principal, command: wire.Act) -> wire.Acted:
        grant = self._grants.get(who.id)
        if grant is None or grant.until_ms <= self._clock.now_ms():
            raise wire.NotGranted
        return wire.Acted(self._act(grant, command.scope, command.message, command.meta))

    def _act(self, grant: Grant, scope: str, message: str, meta: dict[str, Any] | None) -> str:
        self._count(grant)
        if scope not in grant.scopes:
            self._note(grant.run_id, scope, "refused", None)
            raise wire.NotGranted(details={"scope": scope})
        order = order_of(grant, scope, message, meta)
        if self.send is None:
            self._note(grant.run_id, scope, "failed", None)
            raise wire.NoSender
        try:
            self.send(order)
        except ApplianceError:
            self._note(grant.run_id, scope, "failed", None)
            raise
        self._note(grant.run_id, scope, "sent", order.client_message_id)
        return order.client_message_id

    def _count(self, grant: Grant) -> None:
        """Each act is noted in the run's row, so those that are refused count too. Raises
        TooManyActs, of which nothing is noted but one line in the log."""
        most = self.settings.acts_max
        grant.asked += 1
        if grant.asked <= most:
            return
        metrics.acts.labels("any", "too_many").inc()
        if grant.asked == most + 1:
            self._log.error(
                "a hook's run asked for more sends than hooks.acts_max", run=grant.run_id,
                acts_max=most,
            )  # fmt: skip
        raise wire.TooManyActs(details={"limit": most})

    def _note(self, run_id: str, scope: str, outcome: str, client_message_id: str | None) -> None:
        kind = scope.partition(":")[0]
        kind = kind if kind in ("reply", "dm", "topic") else "reply"
        metrics.acts.labels(kind, outcome).inc()
        self._store.write(writes.note_act, run_id, scope, outcome, client_message_id)

    def forget_grants(self, now_ms: int) -> int:
        over = [run_id for run_id, grant in self._grants.items() if grant.until_ms <= now_ms]
        for run_id in over:
            del self._grants[run_id]
        return len(over)

    def runs(self, mesh: str, before: int | None, limit: int) -> wire.HookRuns:
        return wire.HookRuns(*self._store.read(listings.runs, mesh, before, limit))

    def forget_running(self) -> None:
        self._store.write(writes.forget_running)


def check(settings: HookSettings) -> None:
    for command in settings.commands:
        problem = matching.problem(command)
        if problem is not None:
            raise BadSettings(f"settings: hooks.commands: {problem}")


def is_on(settings: HookSettings, off_in_ci: bool, log: Log) -> bool:
    if settings.enabled == "auto" and off_in_ci:
        log.info("hooks are off in CI", hooks=len(settings.commands))
        return False
    return settings.enabled != "off"


def outcome_of(ran: Ran) -> str:
    if ran.code is None:
        return "not_started"
    if ran.timed_out:
        return "timeout"
    return "ok" if ran.code == 0 else "failed"


def reply_in(said: bytes) -> str | None:
    """The reply a hook printed; None where its output is anything else."""
    try:
        told = msgspec.json.decode(said) if said.strip() else None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    reply = told.get("reply") if isinstance(told, dict) else None
    return reply if isinstance(reply, str) and reply else None


def order_of(grant: Grant, scope: str, message: str, meta: dict[str, Any] | None) -> Order:
    """Where an act goes follows from scope and event alone, never from what the hook says."""
    event = grant.message
    kind, _, rest = scope.partition(":")
    reply_to = None
    if kind == "topic":
        to = f"#{rest.removesuffix(':post')}"
    elif kind == "dm" or event.destination_kind != "topic":
        to = f"dm:{event.sender_pubkey}"
    else:
        to = f"#{event.topic}"
    if kind == "reply":
        reply_to = event.broker_message_id
    meta = {**(meta or {}), matching.HOPS: matching.hops(event.meta) + 1}
    return Order(grant.mesh, to, message, f"hook-{random_id()}", reply_to, meta)
