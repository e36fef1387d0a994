"""Completes a recovered outbox: a lost send's id stays used by an aborted send (contract §8), and a
changed send is not delivered.
"""

from appliance.kernel.ids import IdFactory
from appliance.mesh.fingerprint import matches
from appliance.outbox.writes import ID_PREFIX
from appliance.recovery.copying import Copying

INDEX_OF_CLIENT_IDS = "sqlite_autoindex_outbox_2"
LOST = "the send was lost in a damaged file"
CHANGED = "the send does not match its fingerprint after a recovery"
# A send that reserves its id and is never delivered.
_INSERT = (
    "INSERT OR IGNORE INTO outbox (rowid, id, client_message_id, request_fingerprint, payload,"
    " enqueued_at, next_attempt_at, status, last_error, aborted_at, aborted_by, payload_dropped_at,"
    " mesh, target, route, destination_kind, destination_ref, priority)"
    " VALUES (?1, ?2, ?3, zeroblob(32), x'', ?4, ?5, 'aborted', ?6, ?5, 'recover', ?5,"
    " ?7, ?8, ?9, ?10, ?11, ?12)"
)
_NOT_LOGGED = ("unknown", "unknown", "unknown", "topic", "unknown", "next", None)
_LOGGED = (
    "SELECT client_message_id, mesh, target, route, destination_kind, destination_ref, priority,"
    " min(accepted_ms) FROM log AS l WHERE NOT EXISTS (SELECT 1 FROM outbox AS o"
    " WHERE o.client_message_id = l.client_message_id) GROUP BY client_message_id"
)


def finish(copying: Copying) -> None:
    """Finish the outbox; called by a recovery when all tables are copied."""
    kept = _keep_ids(copying)
    done = copying.result["outbox"]
    # Row numbers have no gaps, because no row is ever deleted.
    (highest,) = copying.target.execute("SELECT coalesce(max(rowid), 0) FROM outbox").fetchone()
    done.lost = max(kept, highest - done.read, done.lost)
    if kept:
        copying.notes.append(f"{kept} sends are lost; their ids stay used, as aborted sends")
    if done.lost > kept:
        copying.notes.append(
            f"{done.lost - kept} sends are lost with their ids; one that is sent again may arrive"
            " twice"
        )
    elif not done.counted:
        copying.notes.append("more sends may be lost with their ids")
    _end_changed(copying)


def _keep_ids(copying: Copying) -> int:
    """Insert an aborted send for each lost send whose id is readable in an index or in the log."""
    target, now_ms = copying.target, copying.clock.now_ms()
    numbers = {number for (number,) in target.execute("SELECT rowid FROM outbox")}
    lost: dict[int, str] = {}
    for text, number in copying.damaged.entries(INDEX_OF_CLIENT_IDS):
        # On unreachable pages, row id index entries look alike.
        if number not in lost or lost[number].startswith(ID_PREFIX):
            lost[number] = text
    ids = IdFactory(copying.clock)
    ids.seed(target.execute("SELECT max(id) FROM outbox").fetchone()[0])
    logged = {row[0]: row[1:] for row in target.execute(_LOGGED)}
    rows: list[tuple[int | None, str]] = [
        (number, lost[number]) for number in sorted(lost.keys() - numbers)
    ]
    rows += [(None, id_) for id_ in logged.keys() - set(lost.values())]
    kept = 0
    for row_number, text in rows:
        *send, accepted_ms = logged.get(text, _NOT_LOGGED)
        times = (accepted_ms or now_ms, now_ms)
        aborted = (row_number, ids.new(ID_PREFIX), text, *times, LOST, *send)
        kept += target.execute(_INSERT, aborted).rowcount
    return kept


def _end_changed(copying: Copying) -> None:
    """End waiting sends whose content doesn't match their fingerprint."""
    changed = [
        (copying.clock.now_ms(), CHANGED, row_id)
        for row_id, digest, *send in copying.target.execute(
            "SELECT id, request_fingerprint, destination_kind, destination_ref, payload,"
            " reply_to_id, priority, meta FROM outbox WHERE payload_dropped_at IS NULL"
        )
        if not matches(digest, *send)
    ]
    copying.report_changed("sends", [row_id for _, _, row_id in changed])
    copying.target.executemany(
        "UPDATE outbox SET status = 'dead', died_at = ?, last_error = ?"
        " WHERE id = ? AND status IN ('pending', 'inflight')",
        changed,
    )
