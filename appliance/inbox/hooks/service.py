"""Runs hooks on events, and sends what they request."""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from appliance.child.command import CommandResult, Commands
from appliance.inbox.event import InboxEvent, of_message
from appliance.inbox.hooks import listings, matching, metrics, queries, wire, writes
from appliance.inbox.hooks.settings import HookCommand, HookSettings
from appliance.inbox.wire import InboxMessage
from appliance.kernel.auth import Principal, TokenBook, is_expired
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import ApplianceError
from appliance.kernel.ids import random_id, secret_token
from appliance.kernel.log import Log
from appliance.kernel.store import Store
from appliance.kernel.wakeup import Wakeup
from appliance.mesh.push import Push
from appliance.sdk.http import json_object

HOPS_MAX = 4  # hooks in a row that can reply to each other
QUEUE_MAX = 1000  # waiting runs for events without a message; more are dropped
READ_MAX = 100  # waiting message runs in memory; the rest is in the store
GRANTS_MAX = 10_000  # valid grants; beyond that the oldest is revoked
ACTS_MAX = 100  # sends that one run can request, including refused ones
GRANT_SECONDS = 300.0  # time in which a run can send
OUTPUT_BYTES_MAX = 64 * 1024  # a hook's output size; more is ignored
EVENT_BYTES_MAX = 256 * 1024  # JSON size on a hook's standard input
RUN_SECONDS_MAX = 30.0  # then the command's process group gets SIGTERM
KILL_AFTER_SECONDS = 5.0  # time between SIGTERM and SIGKILL
INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER")
TRUNCATION_MARGIN_BYTES = 2048


class HookMessage(msgspec.Struct, frozen=True):
    """A message that a hook wants sent."""

    mesh: str
    to: str
    message: str
    client_message_id: str
    reply_to_id: str | None = None
    meta: dict[str, Any] | None = None


SendHookMessage = Callable[[HookMessage], None]
"""Queues the message in the outbox; raises ApplianceError if it is refused."""


class HookJob(NamedTuple):
    id: str
    command: HookCommand
    event: InboxEvent


class HookGrant(Principal, frozen=True, kw_only=True):
    """A run as a caller, with its permitted sends. `requests` counts send requests, including
    refused ones."""

    until_ms: int
    mesh: str
    message: InboxMessage | None
    granted: tuple[str, ...]
    requests: Iterator[int]


class HookedInbox(Protocol):
    """The inbox as hooks need it."""

    hooks_of: Callable[[Push, bool], Sequence[tuple[int, str]]]

    @property
    def meshes(self) -> list[str]: ...
    def announce(self, name: str, mesh: str, **facts: Any) -> None: ...
    def mesh_of(self, mesh: str | None, principal: Principal, scope: str) -> str: ...


class HooksNeeds(msgspec.Struct, frozen=True):
    """The hooks' needs. `listen` takes a function that is called with each event. `own` returns
    this member's key and names in a mesh, `url` this appliance's URL. Without `send` hooks can't
    send."""

    inbox: HookedInbox
    listen: Callable[[Callable[[InboxEvent], None]], None]
    store: Store
    book: TokenBook
    off_in_ci: bool
    own: Callable[[str], Collection[str]]
    url: Callable[[], str]
    send: SendHookMessage | None


class HookService:
    def __init__(
        self,
        settings: HookSettings,
        needs: HooksNeeds,
        clock: Clock,
        log: Log,
        folder: Path,
        environment: Mapping[str, str],
        commands: Commands,
    ) -> None:
        self.settings = settings
        self.wakeup = Wakeup()
        self._needs = needs
        self._store = needs.store
        self._clock = clock
        self._log = log
        self._folder = folder
        self._commands = commands
        self._environment = {
            name: environment[name] for name in INHERITED_VARIABLES if environment.get(name)
        }
        self._queue: deque[HookJob] = deque()
        self.enabled = bool(settings.commands) and is_on(settings, needs.off_in_ci, log)
        self._read_number = 0  # the newest stored run that was queued
        self._may_wait = True  # runs in the store that are not in the queue
        self._stored = 0  # runs that waited in the store beside the queue at the last read
        metrics.waiting.set_function(lambda: self._stored + len(self._queue))

    def on_event(self, event: InboxEvent) -> None:
        """Queue the hooks for an event. Called on the event loop after each commit; must not
        block."""
        if event.message is not None:  # stored with its runs
            self._may_wait = True
            self.wakeup.set()
            return
        names = matching.event_names(event)
        for position, hook in self._commands_on(names, event.mesh):
            if len(self._queue) >= QUEUE_MAX:
                metrics.runs.labels(matching.label(hook), "dropped").inc()
                self._log.warning("a hook run was dropped: queue full", hook=hook)
                continue
            command = self.settings.commands[position]
            self._queue.append(HookJob(f"run_{random_id()}", command, event))
            self.wakeup.set()

    def hooks_of(self, push: Push, own: bool) -> list[tuple[int, str]]:
        """Return the commands that run on a message, by position and `on`; called before its
        commit."""
        if own and not self.settings.include_own_messages:
            return []
        if matching.hops(push.meta) >= HOPS_MAX:
            metrics.runs.labels("none", "hops").inc()
            self._log.warning(f"no hook was run: {HOPS_MAX} hooks have replied", id=push.message_id)
            return []
        names = matching.message_names(push, self._needs.own(push.mesh))
        return self._commands_on(names, push.mesh)

    def _commands_on(self, names: Collection[str], mesh: str) -> list[tuple[int, str]]:
        return [
            (position, command.on)
            for position, command in enumerate(self.settings.commands)
            if command.on in names and command.mesh in (None, mesh)
        ]

    def next_job(self) -> HookJob | None:
        if not self._queue and self._may_wait:
            self._read_waiting()
        return self._queue.popleft() if self._queue else None

    def _read_waiting(self) -> None:
        """Queue stored runs. A run whose command is no longer in the settings is lost."""
        runs = self._store.read(queries.waiting, self._read_number, READ_MAX)
        self._may_wait = len(runs) == READ_MAX
        for run in runs:
            if run.number <= self._read_number:  # read by another runner meanwhile
                continue
            self._read_number = run.number
            commands = self.settings.commands[run.command : run.command + 1]
            if [command.on for command in commands] != [run.hook]:
                self._store.write(writes.end, run.id, "lost", None, 0, 0)
                continue
            self._queue.append(HookJob(run.id, commands[0], of_message(run.message)))
        self._stored = self._store.read(queries.count_waiting, self._read_number)

    # -- one run -----------------------------------------------------------------------------

    def run_job(self, job: HookJob) -> str:
        """Run the hook and return its outcome."""
        command, event = job.command, job.event
        grant = HookGrant(
            job.id, "hook", frozenset({wire.ACT}), mesh=event.mesh, message=event.message,
            until_ms=self._clock.now_ms() + int(GRANT_SECONDS * 1000),
            granted=matching.grant_scopes(command, event.message), requests=count(1),
        )  # fmt: skip
        text, truncated = self._input(job, grant)
        inbox_id = None if event.message is None else event.message.id
        self._store.write(writes.begin, job.id, command.on, event.name, event.mesh, truncated)
        environment = self._environment_for(job, grant)
        if command.network_policy == "deny":
            metrics.unenforceable.inc()
        ran = self._commands.run(
            command.run,
            text,
            environment,
            folder=self._folder,
            seconds_max=RUN_SECONDS_MAX,
            kill_after_seconds=KILL_AFTER_SECONDS,
            output_bytes_max=OUTPUT_BYTES_MAX,
        )
        outcome = outcome_of(ran)
        if outcome == "ok":
            self._send_printed_reply(grant, ran)
        self._store.write(
            writes.end, job.id, outcome, ran.code, int(ran.seconds * 1000), len(ran.output)
        )
        hook = matching.label(command.on)
        metrics.runs.labels(hook, outcome).inc()
        metrics.seconds.labels(hook).observe(ran.seconds)
        if outcome != "ok":
            self._log.warning(
                "a hook failed", hook=hook, run=job.id, outcome=outcome, code=ran.code
            )
        self._needs.inbox.announce(
            "hook_executed", event.mesh, run=job.id, hook=command.on, outcome=outcome,
            exit_code=ran.code, inbox_id=inbox_id,
        )  # fmt: skip
        return outcome

    def _input(self, job: HookJob, grant: HookGrant) -> tuple[bytes, bool]:
        """Return the hook's standard input, and whether it was truncated: body shortened, meta
        removed."""
        event = job.event
        fields = {
            "run": job.id, "hook": job.command.on, "event": event.name, "mesh": event.mesh,
            "scopes": grant.granted, "until": iso(grant.until_ms),
            "data": msgspec.Raw(event.data),
        }  # fmt: skip
        text = msgspec.json.encode(fields)
        if len(text) <= EVENT_BYTES_MAX or event.message is None:
            return text, False
        # A character can take six bytes in JSON.
        characters = (EVENT_BYTES_MAX - TRUNCATION_MARGIN_BYTES) // 6
        body = (event.message.body or "")[:characters]
        short = msgspec.structs.replace(event.message, body=body, meta=None)
        return msgspec.json.encode({**fields, "data": short, "_truncated": True}), True

    def _environment_for(self, job: HookJob, grant: HookGrant) -> dict[str, str]:
        """Return a run's environment: inherited basics, and its grant's token."""
        environment = {**self._environment, "AGENTLIP_HOOK": job.command.on, "AGENTLIP_RUN": job.id}
        if grant.granted:
            secret = secret_token()
            self._needs.book.add_temporary(secret, grant, GRANTS_MAX)
            environment |= {"AGENTLIP_URL": self._needs.url(), "AGENTLIP_HOOK_TOKEN": secret}
        return environment

    def _send_printed_reply(self, grant: HookGrant, ran: CommandResult) -> None:
        """Send `{"reply": "…"}` on standard output as a reply, if that is granted."""
        reply = reply_in(ran.output)
        if reply is None:
            return
        try:
            self._act(grant, matching.REPLY, reply, None)
        except ApplianceError as error:
            self._log.warning("a hook's reply was not sent", run=grant.id, code=error.code)

    # -- acts by a grant -----------------------------------------------------------------------

    def act(self, principal: Principal, command: wire.Act) -> wire.Acted:
        if not isinstance(principal, HookGrant) or is_expired(principal, self._clock.now_ms()):
            raise wire.NotGranted
        return wire.Acted(self._act(principal, command.scope, command.message, command.meta))

    def _act(self, grant: HookGrant, scope: str, message: str, meta: dict[str, Any] | None) -> str:
        # Refused ones count too, because each is stored in the run's row.
        if next(grant.requests) > ACTS_MAX:
            metrics.acts.labels("any", "too_many").inc()
            raise wire.TooManyActs(details={"limit": ACTS_MAX})
        if scope not in grant.granted:
            self._record_act(grant.id, scope, "refused", None)
            raise wire.NotGranted(details={"scope": scope})
        hook_message = message_for(grant, scope, message, meta)
        try:
            if self._needs.send is None:
                raise wire.NoSender
            self._needs.send(hook_message)
        except ApplianceError:
            self._record_act(grant.id, scope, "failed", None)
            raise
        self._record_act(grant.id, scope, "sent", hook_message.client_message_id)
        return hook_message.client_message_id

    def _record_act(
        self, run_id: str, scope: str, outcome: str, client_message_id: str | None
    ) -> None:
        kind = scope.partition(":")[0]
        kind = kind if kind in ("reply", "dm", "topic") else "reply"
        metrics.acts.labels(kind, outcome).inc()
        self._store.write(writes.note_act, run_id, scope, outcome, client_message_id)

    def runs(self, mesh: str, before: int | None, limit: int) -> wire.HookRuns:
        return wire.HookRuns(*self._store.read(listings.runs, mesh, before, limit))


def is_on(settings: HookSettings, off_in_ci: bool, log: Log) -> bool:
    if settings.enabled == "auto" and off_in_ci:
        log.info("hooks are off in CI", hooks=len(settings.commands))
        return False
    return settings.enabled != "off"


def outcome_of(ran: CommandResult) -> str:
    if ran.code is None:
        return "not_started"
    if ran.timed_out:
        return "timeout"
    return "ok" if ran.code == 0 else "failed"


def reply_in(output: bytes) -> str | None:
    """Return the reply that a hook printed; None for any other output."""
    reply = json_object(output).get("reply")
    return reply if isinstance(reply, str) and reply else None


def message_for(
    grant: HookGrant, scope: str, message: str, meta: dict[str, Any] | None
) -> HookMessage:
    """Return the message to send. The destination depends only on scope and event, not on the
    hook."""
    event = grant.message
    assert event is not None, "without a message nothing is granted"
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
    return HookMessage(grant.mesh, to, message, f"hook-{random_id()}", reply_to, meta)
