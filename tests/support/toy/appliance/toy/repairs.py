"""What a repair does with notes: removes blanks at their ends."""

import sqlite3

from appliance.checks.repairs import Arguments, Change
from appliance.kernel.clock import Clock

PARTS = ()


def _trim_notes(connection: sqlite3.Connection, _arguments: Arguments, _clock: Clock) -> str:
    sql = "UPDATE note SET text = trim(text) WHERE text <> trim(text)"
    return f"trimmed {connection.execute(sql).rowcount} notes"


CHANGES: dict[str, Change] = {"trim-notes": _trim_notes}
