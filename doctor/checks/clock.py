"""The finding that the clock was set, for the checks of several stores."""

import sqlite3
from collections.abc import Iterator

from appliance.checks.check import Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.kernel.clock import DAY_MS, iso
from appliance.kernel.steady_clock import read_note

JUMPED = Problem(
    "jumped",
    "The clock was set within the last day.",
    "Nothing to do: waits and ages of sends and deliveries are not affected.",
    Severity.INFO,
)


def recent_clock_change(
    context: Context, connection: sqlite3.Connection, subject: str, waiting: str
) -> Iterator[Finding]:
    """A finding if the clock was set within a day. `waiting`: the rows that have waits and ages."""
    note = read_note(connection)
    if note is None or note.jumped_at is None:
        return
    if iso(context.clock.now_ms() - DAY_MS) < note.jumped_at:
        yield JUMPED.finding(
            subject,
            f"the clock was set by {note.jump_ms / 1000:+.0f} s at {note.jumped_at};"
            f" waits and ages of {waiting} are not affected",
        )
