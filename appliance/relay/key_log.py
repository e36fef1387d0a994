"""Writes and audits the key log: one entry for each key that an agent gets or loses.

Entries are only added. The log begins with the keys that the relay knows at its first start with a
log, and goes on after a restore.
"""

from typing import NamedTuple

from appliance.kernel.batch import Tx
from appliance.kernel.clock import iso
from appliance.kernel.meta import Executor
from appliance.network.key_log import FIRST_HASH, LOST, entry_digest, next_hash
from appliance.relay.rows import KeyLogRow

_LAST = "SELECT agent, event, public_key, max(number) FROM key_log GROUP BY agent"
# Agents whose last entry differs from the table, as event, name and key.
_DIFFERENCES = (
    "SELECT iif(a.status = 'revoked', 'revoked', 'known'), a.name, a.public_key"
    f" FROM agents AS a LEFT JOIN ({_LAST}) AS l ON l.agent = a.name"
    " WHERE l.agent IS NULL OR l.event = 'lost' OR l.public_key <> a.public_key"
    " OR (l.event = 'revoked') <> (a.status = 'revoked')"
    f" UNION ALL SELECT 'lost', l.agent, l.public_key FROM ({_LAST}) AS l"
    " WHERE l.event <> 'lost' AND l.agent NOT IN (SELECT name FROM agents) ORDER BY 2, 1"
)


class LogPosition(NamedTuple):
    """The last entry's number and hash."""

    number: int
    hash: str


def head(reader: Executor) -> LogPosition:
    row = reader.execute("SELECT number, hash FROM key_log ORDER BY number DESC LIMIT 1").fetchone()
    return LogPosition(0, FIRST_HASH) if row is None else LogPosition(*row)


def entries(reader: Executor, after: int, limit: int) -> list[KeyLogRow]:
    rows = reader.execute(
        "SELECT * FROM key_log WHERE number > ? ORDER BY number LIMIT ?", (after, limit)
    )
    return [KeyLogRow(*row) for row in rows]


def append(tx: Tx, event: str, agent: str) -> None:
    """Add an entry with the agent's present key."""
    (key,) = tx.execute("SELECT public_key FROM agents WHERE name = ?", (agent,)).fetchone()
    _insert(tx, tx.now_ms, event, agent, key)


def begin(tx: Tx) -> None:
    """Begin the log with all known keys, unless there is one."""
    if head(tx).number == 0:
        _append_differences(tx, tx.now_ms)


def follow_restore(connection: Executor, now_ms: int) -> None:
    """Add an entry for each agent that a restore has changed."""
    _append_differences(connection, now_ms)


def find_problems(reader: Executor) -> list[str]:
    """Return the log's problems: where the chain breaks, or else each difference from the agents'
    table."""
    broken = _find_break(reader)
    if broken is not None:
        return [broken]
    where = {True: "is missing in", False: "differs from"}
    return [
        f"agent {agent} in the log {where[event == LOST]} the agents' table"
        for event, agent, _ in reader.execute(_DIFFERENCES)
    ]


def _find_break(reader: Executor) -> str | None:
    last = LogPosition(0, FIRST_HASH)
    for values in reader.execute("SELECT * FROM key_log ORDER BY number"):
        row = KeyLogRow(*values)
        expected = _follow(last, *row[1:-1])
        if (row.number, row.hash) != expected:
            return f"entry {row.number} does not follow from entry {last.number}"
        last = expected
    return None


def _append_differences(writer: Executor, now_ms: int) -> None:
    for event, agent, key in writer.execute(_DIFFERENCES).fetchall():
        _insert(writer, now_ms, event, agent, key)


def _insert(writer: Executor, now_ms: int, event: str, agent: str, key: str) -> None:
    values = (now_ms, event, agent, key)
    number, new_hash = _follow(head(writer), *values)
    writer.execute("INSERT INTO key_log VALUES (?, ?, ?, ?, ?, ?)", (number, *values, new_hash))


def _follow(last: LogPosition, at_ms: int, event: str, agent: str, key: str) -> LogPosition:
    """Return where the log ends with one more entry."""
    number = last.number + 1
    digest = entry_digest(number, iso(at_ms), event, agent, key)
    return LogPosition(number, next_hash(last.hash, digest))
