"""The finding that the clock was set, for the checks of several stores."""

import sqlite3
from collections.abc import Iterator

from appliance.kernel.clock import iso
from appliance.kernel.clock_jump import CLOCK_KEY, decoded
from doctor.check import Finding, Severity
from doctor.context import Context

DAY_MS = 86_400_000


def recent_clock_change(
    context: Context, connection: sqlite3.Connection, subject: str, moved: str
) -> Iterator[Finding]:
    """A finding if the clock was set within a day. `moved`: the times that were moved with it."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (CLOCK_KEY,)).fetchone()
    note = decoded(None if row is None else row[0])
    if note is None or note.jumped_at is None:
        return
    if iso(context.clock.now_ms() - DAY_MS) < note.jumped_at:
        yield Finding(
            Severity.INFO,
            subject,
            f"the clock was set by {note.jump_ms / 1000:+.0f} s at {note.jumped_at};"
            f" the times of {moved} were moved with it",
            problem="jumped",
        )
