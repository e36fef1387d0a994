"""Checks that no webhook or plugin of the hub has passed the end of the event log."""

import sqlite3
from collections.abc import Iterator

from appliance.checks.check import Check, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.kernel import meta

_CURSORS = (
    ("webhook", "x_webhooks", "SELECT id, cursor FROM x_webhooks WHERE cursor > ? ORDER BY id"),
    (
        "plugin",
        "x_plugin_cursors",
        "SELECT plugin, cursor FROM x_plugin_cursors WHERE cursor > ? ORDER BY plugin",
    ),
)


def _cursors(context: Context) -> Iterator[Finding]:
    for connection in context.with_tables("hub", "events"):
        end = _end(connection)
        for kind, table, sql in _CURSORS:
            if not meta.exists(connection, table):
                continue
            rows = connection.execute(sql, (end,))
            for name, cursor in rows:
                yield AHEAD.finding(
                    f"{kind} {name}",
                    f"its cursor is {cursor}, but the log ends at {end}: events up to there will be"
                    " left out",
                )


def _end(connection: sqlite3.Connection) -> int:
    """The highest event id that was given out. A restore raises it above all cursors."""
    (end,) = connection.execute(
        "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0),"
        " coalesce((SELECT max(event_id) FROM events), 0))"
    ).fetchone()
    return int(end)


AHEAD = Problem(
    "ahead",
    "The event log was replaced by an older copy, or events were deleted. The receiver gets no"
    " events until the log has reached its cursor.",
    "Restore the newer copy if there is one.",
    Severity.ERROR,
    hint="agentlip doctor --run events.deleted",
)
CHECKS = (
    Check(
        name="hub.cursors",
        inspects="no webhook or plugin has passed the end of the event log",
        find=_cursors,
        reads="the cursors of webhooks and plugins, and the highest event id in the hub's store",
        problems=(AHEAD,),
    ),
)
