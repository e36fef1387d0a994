"""Begins and ends pauses inside transactions, and counts hops between agents in a topic.

An agent's message after another agent's counts one hop more. A person's message sets the count to
zero, and an agent that posts alone counts none. The appliance's own messages change nothing.
"""

from appliance.hub import events
from appliance.hub.bound_records import PauseEvent, ShownPause
from appliance.hub.events import encode
from appliance.kernel.batch import Tx
from appliance.kernel.clock import iso
from appliance.kernel.meta import Executor
from appliance.kernel.pauses import PauseCause, PauseKind, StoredPause, refusal_of
from appliance.kernel.reader import Reader

HOPS_MAX = 200  # agents that work together rarely need more without a person
PAUSES_MAX = 10_000  # all are in memory
AGENTS_MAX = 110_000  # the limits of agents and inboxes, together
APPLIANCE = "appliance"  # begins the pauses that nobody else began
_PAUSES = (
    "SELECT p.id, p.kind, p.subject, p.cause, p.paused_by, p.paused_at, p.reason,"
    " p.until_steady_ms, p.ask_id, c.name || '/' || t.title FROM x_pauses AS p"
    " LEFT JOIN topics AS t ON p.kind = 'topic' AND t.id = p.subject"
    " LEFT JOIN channels AS c ON c.id = t.channel_id"
)
_PAUSE = f"{_PAUSES} WHERE p.kind = ? AND p.subject = ?"
_PAGE = f"{_PAUSES} WHERE p.id > ? ORDER BY p.id LIMIT ?"
_AGENTS = (
    "SELECT name FROM x_agents UNION SELECT name FROM x_inboxes WHERE opened_at IS NOT NULL LIMIT ?"
)
_BEGIN = (
    "INSERT INTO x_pauses (kind, subject, cause, paused_by, paused_at, reason, until_steady_ms)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (kind, subject) DO UPDATE SET"
    " cause = ?3, paused_by = ?4, paused_at = ?5, reason = ?6, until_steady_ms = ?7"
)
_NOTE_WAKING = (
    "UPDATE x_inboxes SET waking = ifnull(?1, a.state), waking_at = ?2 FROM x_agents AS a"
    " WHERE a.name = ?3 AND x_inboxes.name = ?3"
)
_NOTE_HOP = (
    "INSERT INTO x_hops VALUES (?1, ?2, 0)"
    " ON CONFLICT (topic_id) DO UPDATE SET sender = ?2, hops = hops + 1 RETURNING hops"
)
_FORGET_HOPS = "DELETE FROM x_hops WHERE topic_id = ?"

Scope = tuple[str, str | None]
"""The channel and the topic of an event."""


def find(reader: Executor, kind: str, subject: str) -> StoredPause | None:
    row = reader.execute(_PAUSE, (kind, subject)).fetchone()
    return None if row is None else StoredPause(*row)


def page(reader: Reader, after: int = 0, limit: int = PAUSES_MAX) -> list[StoredPause]:
    return [StoredPause(*row) for row in reader.rows(_PAGE, (after, limit), limit=limit)]


def next_due(reader: Reader) -> int | None:
    """Return when the next pause ends, by the steady clock."""
    due: int | None = reader.row("SELECT min(until_steady_ms) FROM x_pauses")[0]
    return due


def agents(reader: Reader) -> set[str]:
    """Return the names that agents have reported, or whose inboxes are in use."""
    return {name for (name,) in reader.rows(_AGENTS, (AGENTS_MAX,), limit=AGENTS_MAX)}


def to_wire(pause: StoredPause, ahead_ms: int) -> ShownPause:
    """Return a pause with its end by the wall clock, which is `ahead_ms` ahead."""
    until = pause.until_steady_ms
    return ShownPause(
        pause.id, pause.kind, pause.subject, pause.topic, pause.cause, pause.by, pause.at,
        pause.reason, None if until is None else iso(until + ahead_ms), pause.ask_id,
    )  # fmt: skip


def begin(
    tx: Tx, kind: PauseKind, subject: str, cause: PauseCause, by: str, reason: str | None,
    until_steady_ms: int | None, scope: Scope, principal: str | None = None,
) -> ShownPause:  # fmt: skip
    """Pause a subject, in place of its former pause. `scope`: the event's."""
    tx.execute(_BEGIN, (kind, subject, cause, by, tx.now, reason, until_steady_ms))
    _note_waking(tx, kind, subject, "paused")
    pause = find(tx, kind, subject)
    assert pause is not None
    return _announce(tx, "pause.began", pause, scope, principal)


def end(tx: Tx, pause: StoredPause, scope: Scope, principal: str | None = None) -> ShownPause:
    """End a pause. A topic's count of hops is zero again."""
    tx.execute("DELETE FROM x_pauses WHERE id = ?", (pause.id,))
    _note_waking(tx, pause.kind, pause.subject, None)
    if pause.kind == "topic":
        tx.execute(_FORGET_HOPS, (pause.subject,))
    return _announce(tx, "pause.ended", pause, scope, principal)


def find_current(tx: Tx, kind: PauseKind, subject: str) -> StoredPause | None:
    """Return a pause that has not ended."""
    pause = find(tx, kind, subject)
    return None if pause is None or pause.has_ended(tx.steady_ms) else pause


def refuse_paused(tx: Tx, kind: PauseKind, subject: str) -> None:
    """Raise Paused if the subject is paused."""
    pause = find_current(tx, kind, subject)
    if pause is not None:
        raise refusal_of(pause, to_wire(pause, tx.now_ms - tx.steady_ms).until)


def count_hop(tx: Tx, topic: tuple[str, str], sender: str, is_agent: bool) -> None:
    """Count the hop of a message whose sender did not write the last one; at the limit, pause the
    topic. `topic`: its channel's id, and its own."""
    channel_id, topic_id = topic
    if not is_agent:
        tx.execute(_FORGET_HOPS, (topic_id,))
        return
    ((hops,),) = tx.execute(_NOTE_HOP, (topic_id, sender)).fetchall()
    if hops >= HOPS_MAX:
        reason = f"{hops} answers between agents, without a person"
        begin(tx, "topic", topic_id, "hops", APPLIANCE, reason, None, (channel_id, topic_id))


def _note_waking(tx: Tx, kind: PauseKind, subject: str, state: str | None) -> None:
    """Note in an agent's receipts that it is paused; None: its own state again."""
    if kind == "principal":
        tx.execute(_NOTE_WAKING, (state, tx.now, subject))


def _announce(
    tx: Tx, name: str, pause: StoredPause, scope: Scope, principal: str | None
) -> ShownPause:
    shown = to_wire(pause, tx.now_ms - tx.steady_ms)
    events.append(
        tx, name, ("pause", str(pause.id)), encode(PauseEvent(shown, principal)),
        channel_id=scope[0], topic_id=scope[1],
    )  # fmt: skip
    return shown
