"""The outbox service: accepts and lists sends, and reports its state."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from appliance.kernel import caller
from appliance.kernel.clock import HOUR_MS, Clock
from appliance.kernel.errors import ApplianceError, Exhausted, Invalid
from appliance.kernel.ids import IdFactory
from appliance.kernel.log import Log
from appliance.kernel.steady_clock import SteadyClock
from appliance.kernel.store import Store
from appliance.kernel.turns import parse_in_pieces
from appliance.kernel.wakeup import Wakeup
from appliance.mesh.fingerprint import fingerprint, prefix
from appliance.outbox import (
    destination,
    listings,
    metrics,
    ordering,
    queries,
    reload,
    states,
    wire,
    writes,
)
from appliance.outbox.capacity import Gauge
from appliance.outbox.expiry import max_age_hours
from appliance.outbox.pauses import Pauses
from appliance.outbox.routes import Routes
from appliance.outbox.rows import SendRow
from appliance.outbox.settings import OutboxSettings
from appliance.outbox.target import (
    MAIL,
    Meta,
    Targets,
)
from appliance.outbox.views import (
    message_of,
    meta_of,
    row_bytes,
    to_wire,
)
from appliance.outbox.writes import Acceptance, NewSend

META_BYTES_MAX = 16_384  # meta size as JSON that a broker accepts
ACCEPTS_MAX = 64  # concurrent send requests; more get 429
RETRY_AFTER_MAX_MS = HOUR_MS  # longest Retry-After that is obeyed
BROKER = "broker"
FEATURES = (
    "send", "send_batch", "topic_post", "outbox_redrive", "outbox_requeue", "outbox_reload",
)  # fmt: skip
NO_MAIL = "set mail.host in agentlip.toml, then: agentlipd restart"
ROW_BYTES = 400  # a row's estimated size without the payload

ID_CHARACTERS_MAX = 255
_ID = re.compile(rf"[\x21-\x7e]{{1,{ID_CHARACTERS_MAX}}}")

_encode = msgspec.json.Encoder().encode
PAGE_MAX = 1000  # rows in one listing page
STEP_ROWS_MAX = 1000  # rows changed by one maintenance step


def features_of(*, mail: bool) -> list[str]:
    """Return the send features' names, with mail if a server is set."""
    return [*FEATURES, *(["mail"] if mail else [])]


class Membership:
    """Decides whether this appliance's key may send to a mesh. This class allows every mesh."""

    def refusal(self, mesh: str) -> ApplianceError | None:
        """Return the error with which sends to the mesh are refused, or None."""
        return None

    def on_revoked(self, mesh: str, pubkey: str) -> None:
        """Note that a broker refused a send because that key is revoked."""


class Outbox:
    """One per process. Methods return when their effect is durable."""

    def __init__(
        self,
        store: Store,
        settings: OutboxSettings,
        targets: Targets,
        clock: Clock,
        log: Log,
        *,
        membership: Membership | None = None,
        read_settings: Callable[[], OutboxSettings] | None = None,
    ) -> None:
        """`read_settings` reads [outbox] again, for `reload`."""
        self.store = store
        self.settings = settings
        self.targets = targets
        self.clock = clock
        self.log = log
        self.gauge = Gauge(settings.sends_max, settings.bytes_max)
        self.membership = membership or Membership()
        self._read_settings = read_settings or (lambda: self.settings)
        self.routes = Routes(clock)
        self.delivery_work = Wakeup()  # set on sends that may be delivered now
        self._ids = IdFactory(clock)
        self.steady = SteadyClock(store, clock, log)
        self.pauses = Pauses(store, self.steady)
        self._in_flight = 0
        self._retention_days: dict[str, int | None] = {}
        self.mesh_max_age_hours: dict[str, int] = {}
        self.broker_epochs: dict[str, str] = {}
        self.comparison_work = Wakeup()  # set on a broker's new epoch
        self._default_hours = max_age_hours(settings.retention_days, settings.max_age_hours)
        self._in_order = ordering.parse(settings.in_order)

    def open(self) -> None:
        """Call at the start: continue the steady clock and pauses, and end waits above their
        limit."""
        self.steady.open()
        self.pauses.open()
        longest_ms = RETRY_AFTER_MAX_MS + round(self.settings.retry.max_seconds * 1000)
        self.store.write(writes.cap_waits, longest_ms)

    # -- maximum age --------------------------------------------------------------------

    def set_retention(self, mesh: str, retention_days: int | None) -> None:
        """Set how long a mesh's broker remembers ids, as negotiated; None: permanently. Raises
        RetentionTooShort or MaxAgeTooLong."""
        self.mesh_max_age_hours[mesh] = max_age_hours(retention_days, self.settings.max_age_hours)
        self._retention_days[mesh] = retention_days

    def set_epoch(self, mesh: str, epoch: str) -> None:
        """Set the mesh broker's epoch. After a change, all sends that the broker should have are
        compared with the broker's."""
        self.broker_epochs[mesh] = epoch
        self.comparison_work.set()

    def max_age_hours(self, mesh: str) -> int:
        return self.mesh_max_age_hours.get(mesh, self._default_hours)

    # -- settings ------------------------------------------------------------------------

    def reload(self) -> wire.Reloaded:
        """Read the settings again and apply those that need no restart. Raises BadSettings, also if
        a maximum age doesn't fit; then nothing has changed."""
        settings, changed, after_restart = reload.compare(self.settings, self._read_settings())
        override = settings.max_age_hours
        default_hours = max_age_hours(settings.retention_days, override)
        max_age = {
            mesh: max_age_hours(days, override) for mesh, days in self._retention_days.items()
        }
        in_order = ordering.parse(settings.in_order)
        self.settings, self._default_hours, self._in_order = settings, default_hours, in_order
        self.mesh_max_age_hours = max_age
        self.gauge.set_limits(settings.sends_max, settings.bytes_max)
        self.log.info("settings reloaded", changed=changed, needs_restart=after_restart)
        return wire.Reloaded(changed, after_restart)

    # -- sending -------------------------------------------------------------------------

    def send(
        self,
        command: wire.Send,
        key: str | None = None,
        *,
        internal: bool = False,
        principal: str | None = None,
    ) -> tuple[int, wire.Accepted]:
        """Return status and body for `POST /v1/send`; raise a refused send's error. `internal`:
        the caller is this process, which may use all targets and bodies with any size.
        `principal` is stored with the send."""
        new = self._prepare(command, key, internal, principal)
        return self._reply(new, *self._accept([new]))

    def topic_post(
        self, command: wire.TopicPost, key: str | None = None, *, principal: str | None = None
    ) -> tuple[int, wire.Accepted]:
        send = wire.Send(
            to=f"#{destination.topic(command.topic)}",
            message=command.message,
            priority=command.priority,
            meta={"mentions": command.mentions} if command.mentions else None,
            client_message_id=command.client_message_id,
            mesh=command.mesh,
        )
        return self.send(send, key, principal=principal)

    def send_many(
        self,
        commands: Sequence[wire.Send],
        key: str | None = None,
        *,
        internal: bool = False,
        principal: str | None = None,
    ) -> list[tuple[int, wire.Accepted] | ApplianceError]:
        """Send each item by itself, in order; a refused item doesn't affect the others. Items
        without an id get the request's key with their index appended."""
        if len(commands) > wire.BATCH_MAX:
            details = {"field": "items", "max": wire.BATCH_MAX}
            raise Invalid(f"more than {wire.BATCH_MAX} items", details=details)

        def prepare(index: int) -> NewSend | ApplianceError:
            own = commands[index].client_message_id
            given = own if own is not None or key is None else f"{key}/{index}"
            try:
                return self._prepare(commands[index], given, internal, principal)
            except ApplianceError as error:
                metrics.sends.labels("none", "refused").inc()
                return error

        results: list[Any] = parse_in_pieces(prepare, range(len(commands)), self.clock)
        new_sends = [result for result in results if isinstance(result, NewSend)]
        answers = iter(zip(new_sends, self._accept(new_sends) if new_sends else (), strict=True))
        for index, result in enumerate(results):
            if isinstance(result, NewSend):
                try:
                    results[index] = self._reply(*next(answers))
                except ApplianceError as error:
                    results[index] = error
        return results

    def _prepare(
        self, command: wire.Send, key: str | None, internal: bool, principal: str | None
    ) -> NewSend:
        """Validate a send before its id is used."""
        settings = self.settings
        given = command.client_message_id
        if key is not None and given is not None and key != given:
            raise wire.TwoIds
        if key is not None and not _ID.fullmatch(key):
            raise Invalid(
                f"a client_message_id has 1 to {ID_CHARACTERS_MAX} visible ASCII characters",
                details={"field": "Idempotency-Key"},
            )
        mesh = command.mesh or settings.mesh
        target = command.target or target_of(command.to)
        kind, ref, route = self._resolve(target, mesh, command.to, internal)
        limit = self.targets[target].waiting_max
        if limit is not None and self.store.read(queries.waiting, route, ref, limit) >= limit:
            raise Exhausted(f"{limit} sends wait for this destination", details={"to": command.to})
        body = command.message.encode()
        if not internal:
            self.check_size("message", len(body), settings.message_bytes_max)
        meta = _encode(command.meta).decode() if command.meta else None
        self.check_size("meta", len(meta or ""), META_BYTES_MAX)
        self.check_for_target(target, body, command.meta)
        return NewSend(
            client_message_id=key or given or self._ids.new(""),
            fingerprint=fingerprint(
                kind,
                ref,
                body,
                reply_to_id=command.reply_to_id,
                priority=command.priority,
                meta=command.meta,
            ),
            payload=body,
            mesh=mesh,
            target=target,
            route=route,
            destination_kind=kind,
            destination_ref=ref,
            reply_to_id=command.reply_to_id,
            priority=command.priority,
            meta=meta,
            principal=principal,
            traceparent=caller.traceparent(),
        )

    def _resolve(self, name: str, mesh: str, to: str, internal: bool) -> tuple[Any, str, str]:
        target = self.targets.get(name)
        if target is None or (target.internal_only and not internal):
            others = sorted(
                other for other in self.targets if not self.targets[other].internal_only
            )
            hint = NO_MAIL if name == MAIL else f"one of: {', '.join(others)}"
            raise wire.NoSuchTarget(details={"field": "target"}, hint=hint)
        resolved = target.resolve(to)
        mesh_of_rules = None if resolved else mesh
        if resolved is None:
            if not target.serves(mesh):
                raise wire.NoBrokerForMesh(details={"mesh": mesh})
            resolved = (*destination.parse(to), f"{name}:{mesh}")
            refusal = self.membership.refusal(mesh)
            if refusal is not None:
                raise refusal
        kind, ref, route = resolved
        in_order = ordering.contains(self._in_order, mesh_of_rules, kind, ref)
        return kind, ref, ordering.route_of(route, in_order)

    def check_for_target(self, name: str, body: bytes, meta: Meta | None) -> None:
        """Raise Invalid if that target can't deliver this body and meta."""
        target = self.targets.get(name)
        if target is not None:
            target.check(body, meta)

    def check_size(self, name: str, size: int, limit: int) -> None:
        if size > limit:
            details = {"field": name, "bytes_max": limit}
            raise wire.MessageTooLarge(f"{name} has more than {limit} bytes", details=details)

    def _accept(self, new_sends: Sequence[NewSend]) -> list[Acceptance]:
        if self._in_flight >= ACCEPTS_MAX:
            raise wire.DaemonBusy(retry_after=1.0, details={"max": ACCEPTS_MAX})
        self._in_flight += 1
        try:
            results = self.store.write(writes.accept, tuple(new_sends), self.gauge.free_sends)
        finally:
            self._in_flight -= 1
        stored = [
            new
            for new, result in zip(new_sends, results, strict=True)
            if result.state is None and not result.full
        ]
        if stored:
            self.gauge.add(len(stored), sum(len(new.payload) + ROW_BYTES for new in stored))
            routes = map(self.routes.state, {new.route for new in stored})
            if any(map(self.routes.has_capacity, routes)):  # an ended delivery wakes the waiter too
                self.delivery_work.set()
        return results

    def _reply(self, new: NewSend, acceptance: Acceptance) -> tuple[int, wire.Accepted]:
        """Return the reply from the specification's duplicate table, with its fields."""
        count = metrics.sends.labels
        kind = new.destination_kind
        if acceptance.full:
            count(kind, "refused").inc()
            raise wire.InsufficientStorage(
                retry_after=5.0, details={"level": self.gauge.level, "fill": self.gauge.fill_ratio}
            )
        state, same = acceptance.state, acceptance.same
        if state is None or (same and state in (states.PENDING, states.INFLIGHT)):
            word: Literal["queued", "inflight"]
            word = "inflight" if state == states.INFLIGHT else "queued"
            count(kind, word).inc()
            return 202, wire.Accepted(new.client_message_id, status=word)
        if same and state == states.DONE:
            count(kind, "duplicate").inc()
            return 200, wire.Accepted(
                new.client_message_id,
                broker_message_id=acceptance.broker_message_id,
                history_id=acceptance.history_id,
                duplicate=True,
            )
        count(kind, "conflict").inc()
        fields: dict[str, Any] = {
            "client_message_id": new.client_message_id,
            "conflict": f"outbox_{state}_fingerprint_{'match' if same else 'mismatch'}",
            "daemon_fingerprint_prefix": prefix(new.fingerprint),
        }
        if state == states.DONE:
            fields["broker_message_id"] = acceptance.broker_message_id
        if same and state == states.DEAD:
            fields["reason"] = acceptance.last_error or ""
        raise wire.IdReused(extra=fields, details={"id": new.client_message_id})

    # -- reading -------------------------------------------------------------------------

    def list_sends(self, query: wire.ListQuery) -> wire.OutboxPage:
        filters = self.filters(query.mesh, query.to)
        limit = min(query.limit, PAGE_MAX)
        oldest_first = query.after is not None and query.before is None
        rows, more = self.store.read(
            listings.sends, self._to_wire(), row_bytes,
            query.status, filters, query.after, query.before, limit, oldest_first,
        )  # fmt: skip
        return wire.OutboxPage(rows, rows[-1].id if more else None)

    def inspect(self, any_id: str) -> wire.OutboxSend:
        row, rows = self.store.read(queries.inspect, any_id)
        make = self._to_wire()
        chain = [make(redriven) for redriven in rows]
        return wire.OutboxSend(make(row), message_of(row), meta_of(row), chain)

    def _to_wire(self) -> Callable[[SendRow], wire.OutboxRow]:
        return partial(to_wire, ahead_ms=self.steady.ahead_ms())

    def state(self) -> wire.OutboxState:
        stats, gauge = self.store.read(queries.stats), self.gauge
        age_ms = 0 if stats.oldest_ms is None else self.steady.now_ms() - stats.oldest_ms
        served = {self.settings.mesh, *(remote.mesh for remote in self.settings.brokers)}
        broker = self.targets.get(BROKER)
        meshes = sorted(mesh for mesh in served if broker is None or broker.serves(mesh))
        return wire.OutboxState(
            level=gauge.level,
            fill=round(gauge.fill_ratio, 4),
            depth=stats.depth,
            oldest_pending_seconds=max(0, age_ms) / 1000,
            inflight=stats.depth.get("inflight", 0),
            max_age_hours={mesh: self.max_age_hours(mesh) for mesh in meshes},
            meshes=meshes,
            open_routes=self.routes.open_names(),
            lost=stats.lost,
            paused=self.pauses.list(),
        )

    @property
    def features(self) -> list[str]:
        """Return the enabled send features' names, for `/v1/version` and `/v1/health`."""
        return features_of(mail=MAIL in self.targets)

    def waiting(self, target: str, to: str, limit: int) -> int:
        """Return how many sends to a destination are not delivered yet, counted up to `limit`."""
        _, ref, route = self._resolve(target, self.settings.mesh, to, internal=True)
        return self.store.read(queries.waiting, route, ref, limit)

    def retry_now(self, target: str, to: str) -> None:
        """Make the waiting sends to a destination due now, because the owner changed the
        destination."""
        _, ref, route = self._resolve(target, self.settings.mesh, to, internal=True)
        self.store.write(writes.make_due, route, ref)
        self.routes.state(route).breaker.note_success()
        self.delivery_work.set()

    def filters(self, mesh: str | None, to: str | None) -> dict[str, Any]:
        filters: dict[str, Any] = {}
        if mesh is not None:
            filters["mesh"] = mesh
        if to is not None:
            kind, ref = destination.parse_stored(to)
            filters |= {"destination_kind": kind, "destination_ref": ref}
        return filters

    def new_id(self) -> str:
        return self._ids.new("")


def target_of(to: str) -> str:
    """Return the target for a send that names none."""
    if to.startswith(destination.NETWORK):
        return destination.NETWORK.rstrip(":")
    return MAIL if to.startswith(destination.MAILTO) else BROKER
