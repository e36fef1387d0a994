"""Changes pauses and ceilings for an operator, inside their transactions."""

from appliance.hub import ceilings, pausing
from appliance.hub.bound_records import ShownPause
from appliance.hub.bounds import wire
from appliance.hub.entries.writes import repeat_overdue
from appliance.hub.events import encode
from appliance.hub.pausing import Scope
from appliance.hub.wire import NoSuchTopic
from appliance.kernel.batch import Tx
from appliance.kernel.idempotency import Reply
from appliance.kernel.pauses import PauseKind, StoredPause

ENDED_MAX = 100  # pauses ended in one transaction
_SET = (
    "INSERT INTO x_ceilings VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
    " messages = excluded.messages, turns = excluded.turns, claims = excluded.claims,"
    " tokens = excluded.tokens, cost = excluded.cost, set_by = excluded.set_by,"
    " set_at = excluded.set_at"
)
_ENDED = "SELECT kind, subject FROM x_pauses WHERE until_steady_ms <= ? ORDER BY id LIMIT ?"


def pause(
    tx: Tx, kind: PauseKind, subject: str, reason: str | None, seconds: int | None, by: str,
    principal: str | None, until_ms: int | None = None,
) -> Reply:  # fmt: skip
    """Pause a subject for an operator, for some seconds or until a time. Raises NoSuchTopic or
    TooManyPauses."""
    former = pausing.find(tx, kind, subject)
    (count,) = tx.execute("SELECT count(*) FROM x_pauses").fetchone()
    if former is None and count >= pausing.PAUSES_MAX:
        raise wire.TooManyPauses(details={"limit": pausing.PAUSES_MAX})
    length_ms = until_ms - tx.now_ms if until_ms is not None else seconds and seconds * 1000
    until = None if length_ms is None else tx.steady_ms + length_ms
    scope = _scope(tx, kind, subject)
    shown = pausing.begin(tx, kind, subject, "operator", by, reason, until, scope, principal)
    return Reply(201 if former is None else 200, encode(wire.PauseChanged(shown)))


def resume(tx: Tx, kind: PauseKind, subject: str, principal: str | None) -> Reply:
    """End a pause. A name that reached its ceiling gets the ceiling again. Raises NotPaused."""
    stored = pausing.find(tx, kind, subject)
    if stored is None:
        raise wire.NotPaused(details={"kind": kind, "subject": subject})
    if stored.cause == "ceiling":
        ceilings.grant(tx, subject)
    return Reply(200, encode(wire.PauseChanged(_end(tx, stored, principal))))


def end_due(tx: Tx) -> int:
    """End the pauses whose time is over; return how many."""
    due = tx.execute(_ENDED, (tx.steady_ms, ENDED_MAX)).fetchall()
    for kind, subject in due:
        stored = pausing.find(tx, kind, subject)
        assert stored is not None
        _end(tx, stored, None)
    return len(due)


def note_ask(tx: Tx, pause_id: int, ask_id: str) -> None:
    tx.execute("UPDATE x_pauses SET ask_id = ? WHERE id = ?", (ask_id, pause_id))


def set_ceiling(tx: Tx, command: wire.SetCeiling, by: str) -> Reply:
    """Set a name's ceiling. Raises TooManyCeilings."""
    known = ceilings.find(tx, command.name, ceilings.day_of(tx)) is not None
    (count,) = tx.execute("SELECT count(*) FROM x_ceilings").fetchone()
    if not known and count >= ceilings.CEILINGS_MAX:
        raise wire.TooManyCeilings(details={"limit": ceilings.CEILINGS_MAX})
    limits = [getattr(command, unit) for unit in ceilings.UNITS]
    tx.execute(_SET, (command.name, *limits, by, tx.now))
    shown = wire.CeilingShown(ceilings.require(tx, command.name))
    return Reply(200 if known else 201, encode(shown))


def remove_ceiling(tx: Tx, name: str) -> Reply:
    if not tx.execute("DELETE FROM x_ceilings WHERE name = ?", (name,)).rowcount:
        raise wire.NoSuchCeiling(details={"name": name})
    tx.execute("DELETE FROM x_usage WHERE name = ?", (name,))
    return Reply(200, encode(wire.CeilingRemoved(name)))


def _end(tx: Tx, stored: StoredPause, principal: str | None) -> ShownPause:
    if stored.kind == "topic":
        repeat_overdue(tx, stored.subject)
    return pausing.end(tx, stored, _scope(tx, stored.kind, stored.subject), principal)


def _scope(tx: Tx, kind: PauseKind, subject: str) -> Scope:
    """Return the scope of a pause's events."""
    if kind != "topic":
        return ceilings.channel_id(tx), None
    row = tx.execute("SELECT channel_id FROM topics WHERE id = ?", (subject,)).fetchone()
    if row is None:
        raise NoSuchTopic(details={"topic_id": subject})
    return row[0], subject
