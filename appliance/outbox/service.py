"""The outbox's verbs: accept a send, look at sends, and what an operator may do with them."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.config import BadSettings
from appliance.kernel.errors import ApplianceError, Invalid
from appliance.kernel.ids import IdFactory
from appliance.kernel.kept_times import KeptTimes
from appliance.kernel.log import Log
from appliance.kernel.page import text_bytes
from appliance.kernel.store import Store
from appliance.mesh.fingerprint import fingerprint, prefix
from appliance.outbox import (
    destination,
    expiry,
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
from appliance.outbox.columns import Row
from appliance.outbox.settings import OutboxSettings
from appliance.outbox.target import MAIL, Bounded, Checking, Meta, Placing, Target, Targets
from appliance.outbox.views import message_of, meta_of, shown
from appliance.outbox.writes import Found, New

BROKER = "broker"
OPERATOR = "operator"
FEATURES = ("send", "send_batch", "topic_post", "outbox_requeue", "outbox_reload")
NO_MAIL = "name a mail server under [mail] in agentlip.toml, and restart"
ROW_BYTES = 400  # of a row beside its payload, for the estimate between two looks
BESIDE_BYTES = 100  # of a page beside its rows: a share for each row is more than enough

ID_CHARACTERS_MAX = 255
_ID = re.compile(rf"[\x21-\x7e]{{1,{ID_CHARACTERS_MAX}}}")

Faces = tuple[Placing | None, Bounded | None, Checking | None]

_encode = msgspec.json.Encoder().encode


class BelowFloor(BadSettings):
    """The broker remembers ids too shortly: contract code 4012."""

    code = "FEATURE_PARAM_BELOW_FLOOR"
    sentence = "the broker does not remember ids for long enough"
    advice = "have the broker remember ids for 7 days at least: outbox.dedupe_retention_days"


class AboveWindow(BadSettings):
    code = "OUTBOX_MAX_AGE_ABOVE_DEDUPE_WINDOW"
    sentence = "sends would be tried for longer than the broker remembers their ids"
    advice = "lower outbox.max_age_hours, or leave it out"


def features_of(settings: OutboxSettings, *, mail: bool) -> list[str]:
    """What an appliance with these settings can do with sends."""
    if not settings.enabled:
        return []
    return [*FEATURES, *(["mail"] if mail else [])]


class Membership(Protocol):
    """Whether our key may send to a mesh."""

    def refusal(self, mesh: str) -> ApplianceError | None:
        """Why nothing may be sent to a mesh now, or None."""

    def on_revoked(self, mesh: str, pubkey: str) -> None:
        """A broker refused a send because it revoked that key."""


class NoMembership:
    """Every mesh may be sent to: nothing is known of members."""

    def refusal(self, mesh: str) -> ApplianceError | None:
        return None

    def on_revoked(self, mesh: str, pubkey: str) -> None:
        pass


NO_MEMBERSHIP = NoMembership()


class Outbox:
    """One per process. A verb returns when its effect is durable."""

    def __init__(
        self,
        store: Store,
        settings: OutboxSettings,
        targets: Targets,
        clock: Clock,
        log: Log,
        tell: Callable[[str, dict[str, Any]], None] = lambda _name, _facts: None,
        *,
        membership: Membership = NO_MEMBERSHIP,
        read_settings: Callable[[], OutboxSettings] | None = None,
    ) -> None:
        """`tell` hears of `outbox_pressure_high` and `outbox_pressure_over`; `read_settings`
        reads [outbox] anew, for `reload`."""
        self.store = store
        self.settings = settings
        self.targets = targets
        self.clock = clock
        self.log = log
        self.tell = tell
        self.nudge: Callable[[str], None] = lambda _route: None
        self.gauge = Gauge(settings.sends_max, settings.bytes_max)
        self.membership = membership
        self._read_settings = read_settings or (lambda: self.settings)
        self.open_routes: Callable[[], list[str]] = list
        self._ids = IdFactory(clock)
        self.jumps = KeptTimes(
            store, clock, log, "sends", writes.move_times, writes.end_impossible_waits,
            settings.retry_after_max_ms + settings.backoff_max_ms, metrics.clock_jumps,
        )  # fmt: skip
        self._in_flight = 0
        self._retention_days: dict[str, int | None] = {}
        self._max_age: dict[str, int] = {}
        self._known_faces: dict[Target, Faces] = {}
        self._default_hours = _hours(settings.retention_days, settings)
        self._in_order = _places_in_order(settings)

    # -- greatest age --------------------------------------------------------------------

    def adopt(self, mesh: str, retention_days: int | None) -> None:
        """What the broker of a mesh said in negotiation; None: it remembers ids for ever.
        Raises BelowFloor or AboveWindow."""
        self._max_age[mesh] = _hours(retention_days, self.settings)
        self._retention_days[mesh] = retention_days

    def max_age_hours(self, mesh: str) -> int:
        return self._max_age.get(mesh, self._default_hours)

    @property
    def adopted(self) -> dict[str, int]:
        return dict(self._max_age)

    # -- settings ------------------------------------------------------------------------

    def reload(self) -> wire.Reloaded:
        """Read the settings again and take over what can be. Raises BadSettings, also when a
        greatest age does not fit; then nothing has changed."""
        settings, changed, after_restart = reload.compare(self.settings, self._read_settings())
        default_hours = _hours(settings.retention_days, settings)
        max_age = {mesh: _hours(days, settings) for mesh, days in self._retention_days.items()}
        in_order = _places_in_order(settings)
        self.settings = settings
        self._default_hours, self._max_age, self._in_order = default_hours, max_age, in_order
        self.gauge.limit(settings.sends_max, settings.bytes_max)
        self.log.info("settings reloaded", changed=changed, needs_restart=after_restart)
        return wire.Reloaded(changed, after_restart)

    # -- sending -------------------------------------------------------------------------

    def send(
        self,
        command: wire.Send,
        key: str | None = None,
        *,
        inside: bool = False,
        principal: str | None = None,
    ) -> tuple[int, wire.Accepted]:
        """Status and body of `POST /v1/send`; raises what is refused. `inside`: asked for by
        this process itself, which may address all targets, and bodies as large as they are.
        `principal` is recorded with the send."""
        new = self._new(command, key, inside, principal)
        (found,) = self._accept([new])
        return self._answer(new, found)

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
        inside: bool = False,
        principal: str | None = None,
    ) -> list[tuple[int, wire.Accepted] | ApplianceError]:
        """Each by itself, in order; one that is refused keeps nobody else. A key of the whole
        request is every item's that has none, with its place added."""
        if len(commands) > self.settings.batch_max:
            raise Invalid(
                f"more than {self.settings.batch_max} items",
                details={"field": "items", "max": self.settings.batch_max},
            )
        results: list[Any] = []
        news: list[New] = []
        for place, command in enumerate(commands):
            own = command.client_message_id
            given = own if own is not None or key is None else f"{key}/{place}"
            try:
                news.append(self._new(command, given, inside, principal))
                results.append(None)
            except ApplianceError as error:
                metrics.sends.labels("none", "refused").inc()
                results.append(error)
        answers = iter(zip(news, self._accept(news) if news else (), strict=True))
        for place, result in enumerate(results):
            if result is None:
                try:
                    results[place] = self._answer(*next(answers))
                except ApplianceError as error:
                    results[place] = error
        return results

    def _new(self, command: wire.Send, key: str | None, inside: bool, principal: str | None) -> New:
        """All that can be said against a send before its id is used up."""
        settings = self.settings
        if not settings.enabled:
            raise wire.OutboxOff
        given = command.client_message_id
        if key is not None and given is not None and key != given:
            raise wire.TwoIds
        if key is not None and not _ID.fullmatch(key):
            raise Invalid(
                f"an id has 1 to {ID_CHARACTERS_MAX} visible ASCII characters",
                details={"field": "Idempotency-Key"},
            )
        mesh = command.mesh or settings.mesh
        target = command.target or target_of(command.to)
        kind, ref, route = self._place(target, mesh, command.to, inside)
        body = command.message.encode()
        if not inside:
            self.check_size("message", len(body), settings.message_bytes_max)
        meta = _encode(command.meta).decode() if command.meta else None
        self.check_size("meta", len(meta or ""), settings.meta_bytes_max)
        self.check_by(target, body, command.meta)
        return New(
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
        )

    def _place(self, name: str, mesh: str, to: str, inside: bool) -> tuple[Any, str, str]:
        target = self.targets.get(name)
        if target is None or (not inside and is_inside_only(target)):
            others = sorted(one for one in self.targets if not is_inside_only(self.targets[one]))
            hint = NO_MAIL if name == MAIL else f"one of: {', '.join(others)}"
            raise wire.NoSuchTarget(details={"field": "target"}, hint=hint)
        placing, bounded, _ = self._faces(target)
        if placing is not None:
            return placing.place(to)
        if bounded is not None and not bounded.serves(mesh):
            raise wire.NoSuchMesh(details={"mesh": mesh})
        kind, ref = destination.parse(to)
        refusal = self.membership.refusal(mesh)
        if refusal is not None:
            raise refusal
        in_order = ordering.holds(self._in_order, mesh, kind, ref)
        return kind, ref, ordering.route_of(name, mesh, in_order)

    def check_by(self, name: str, body: bytes, meta: Meta | None) -> None:
        """Raises Invalid for what that target can't carry."""
        target = self.targets.get(name)
        checking = None if target is None else self._faces(target)[2]
        if checking is not None:
            checking.check(body, meta)

    def _faces(self, target: Target) -> Faces:
        """What else a target is; asked once, for protocols are slow to ask for."""
        known = self._known_faces.get(target)
        if known is None:
            known = (
                target if isinstance(target, Placing) else None,
                target if isinstance(target, Bounded) else None,
                target if isinstance(target, Checking) else None,
            )
            self._known_faces[target] = known
        return known

    def check_size(self, name: str, size: int, most: int) -> None:
        if size > most:
            raise wire.MessageTooLarge(
                f"{name} has more than {most} bytes", details={"field": name, "bytes_max": most}
            )

    def _accept(self, news: Sequence[New]) -> list[Found]:
        if self._in_flight >= self.settings.in_flight_max:
            raise wire.DaemonBusy(retry_after=1.0, details={"max": self.settings.in_flight_max})
        self.jumps.check()
        self._in_flight += 1
        try:
            found = self.store.write(writes.accept, tuple(news), self.gauge.room)
        finally:
            self._in_flight -= 1
        stored = [
            new for new, one in zip(news, found, strict=True) if one.state is None and not one.full
        ]
        if stored:
            self.gauge.accepted(len(stored), sum(len(new.payload) + ROW_BYTES for new in stored))
            for route in {new.route for new in stored}:
                self.nudge(route)
        return found

    def _answer(self, new: New, found: Found) -> tuple[int, wire.Accepted]:
        """The table of the specification, with the fields that belong to each answer."""
        count = metrics.sends.labels
        kind = new.destination_kind
        if found.full:
            count(kind, "refused").inc()
            raise wire.InsufficientStorage(
                retry_after=5.0, details={"level": self.gauge.level, "fill": self.gauge.filled}
            )
        answer = states.answer(found.state, found.same)
        if answer.status == 202:
            count(kind, answer.word).inc()
            return 202, wire.Accepted(new.client_message_id, status=answer.word)  # type: ignore[arg-type]
        if answer.status == 200:
            count(kind, "duplicate").inc()
            return 200, wire.Accepted(
                new.client_message_id,
                broker_message_id=found.broker_message_id,
                history_id=found.history_id,
                duplicate=True,
            )
        count(kind, "conflict").inc()
        told: dict[str, Any] = {
            "client_message_id": new.client_message_id,
            "conflict": answer.conflict,
            "daemon_fingerprint_prefix": prefix(new.fingerprint),
        }
        if answer.tells_broker_id:
            told["broker_message_id"] = found.broker_message_id
        if answer.tells_reason:
            told["reason"] = found.last_error or ""
        raise wire.IdReused(extra=told)

    # -- looking -------------------------------------------------------------------------

    def list_sends(self, query: wire.ListQuery) -> wire.OutboxPage:
        status = "dead" if query.failed else query.status
        filters = self.filters(query.mesh, query.to)
        limit = min(query.limit, self.settings.page_max)
        oldest_first = query.after is not None and query.before is None
        rows, more = self.store.read(
            listings.sends, shown, _shown_bytes,
            status, filters, query.after, query.before, limit, oldest_first,
        )  # fmt: skip
        return wire.OutboxPage(rows, rows[-1].id if more else None)

    def export(self, query: wire.ExportQuery) -> wire.ExportPage:
        limit = min(query.limit, self.settings.page_max)
        sends, more = self.store.read(
            listings.sends, _exported, _exported_bytes,
            query.status, {}, query.after, None, limit, True,
        )  # fmt: skip
        return wire.ExportPage(sends, sends[-1].send.id if more else None)

    def inspect(
        self, any_id: str, after: str | None = None, limit: int = wire.CHAIN_LIMIT
    ) -> wire.OutboxSend:
        found = self.store.read(
            queries.inspect, any_id, after, shown, _shown_bytes,
            _whole_bytes, min(limit, self.settings.page_max),
        )  # fmt: skip
        if found is None:
            raise wire.NoSuchSend(details={"id": any_id})
        row, chain, more = found
        return wire.OutboxSend(
            shown(row), message_of(row), meta_of(row), chain, more, chain[-1].id if more else None
        )

    def state(self) -> wire.OutboxState:
        standing, gauge = self.store.read(queries.standing), self.gauge
        age_ms = 0 if standing.oldest_ms is None else self.clock.now_ms() - standing.oldest_ms
        served = [self.settings.mesh, *(one.mesh for one in self.settings.brokers)]
        broker = self.targets.get(BROKER)
        bounded = None if broker is None else self._faces(broker)[1]
        meshes = sorted({mesh for mesh in served if bounded is None or bounded.serves(mesh)})
        jump_ms, jumped_at = self.jumps.last
        return wire.OutboxState(
            enabled=self.settings.enabled,
            level=gauge.level,
            fill=round(gauge.filled, 4),
            depth=standing.depth,
            oldest_pending_seconds=max(0, age_ms) / 1000,
            inflight=standing.depth.get("inflight", 0),
            max_age_hours={mesh: self.max_age_hours(mesh) for mesh in meshes},
            meshes=meshes,
            open_routes=self.open_routes(),
            clock_jump_seconds=jump_ms / 1000,
            clock_jumped_at=jumped_at,
        )

    @property
    def features(self) -> list[str]:
        """What this appliance can do with sends, for `/v1/version` and `/v1/health`."""
        return features_of(self.settings, mail=MAIL in self.targets)

    def waiting(self, target: str, to: str, most: int) -> int:
        """How many sends of a target's destination are not delivered yet, counted up to `most`."""
        _, ref, route = self._place(target, self.settings.mesh, to, inside=True)
        return self.store.read(queries.waiting, route, ref, most)

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


def _exported(row: Row) -> wire.ExportedSend:
    return wire.ExportedSend(shown(row), message_of(row), meta_of(row))


def _whole_bytes(row: Row) -> int:
    return _exported_bytes(_exported(row)) + BESIDE_BYTES


def _shown_bytes(row: wire.OutboxRow) -> int:
    return len(_encode(row)) + BESIDE_BYTES


def _exported_bytes(export: wire.ExportedSend) -> int:
    meta = 0 if export.meta is None else len(_encode(export.meta))
    return _shown_bytes(export.send) + text_bytes(export.message) + meta


def target_of(to: str) -> str:
    """What delivers a send that names no target."""
    return MAIL if to.startswith(destination.MAILTO) else BROKER


def _hours(retention_days: int | None, settings: OutboxSettings) -> int:
    """The greatest age of sends; raises BelowFloor or AboveWindow."""
    found = expiry.max_age_hours(retention_days, settings.max_age_hours)
    if isinstance(found, expiry.Problem):
        kind = BelowFloor if found.code == expiry.BELOW_FLOOR else AboveWindow
        raise kind(
            f"outbox: {found.code}: {found.sentence}",
            details={"reason": found.code, "close_code": found.close_code},
        )
    return found


def _places_in_order(settings: OutboxSettings) -> ordering.Places:
    try:
        return ordering.places(settings.in_order)
    except destination.BadDestination as error:
        raise BadSettings(f"settings: outbox.in_order: {error.message}", hint=error.hint) from None


def is_inside_only(target: Target | None) -> bool:
    """Whether only this process may send there: what it sends carries our signature."""
    return bool(getattr(target, "inside_only", False))
