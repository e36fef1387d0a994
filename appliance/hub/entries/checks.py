"""Checks inboxes: deadlines that nothing has handled, entries without a message."""

from collections.abc import Iterator

from appliance.checks.check import FINDINGS_MAX, Check, Finding, Problem
from appliance.checks.context import Context
from appliance.kernel.steady_clock import steady_ms

LATE_MS = 60_000  # the loop that handles them is never that late
_LATE = "SELECT id, name FROM x_entries WHERE due_steady_ms < ? LIMIT ?"
_ORPHANS = (
    "SELECT id, name FROM x_entries AS e WHERE NOT EXISTS"
    " (SELECT 1 FROM messages WHERE id = e.message_id) LIMIT ?"
)


def _deadlines(context: Context) -> Iterator[Finding]:
    for connection in context.with_tables("hub", "x_entries"):
        late_ms = steady_ms(connection, context.clock) - LATE_MS
        for number, name in connection.execute(_LATE, (late_ms, FINDINGS_MAX)):
            yield LATE.finding(f"entry {number}", f"{name}'s deadline has passed unhandled")


def _messages(context: Context) -> Iterator[Finding]:
    for connection in context.with_tables("hub", "x_entries"):
        for number, name in connection.execute(_ORPHANS, (FINDINGS_MAX,)):
            yield LOST.finding(f"entry {number}", f"its message for {name} is not in the hub")


LATE = Problem("overdue", hint="agentlipd up")
LOST = Problem("lost", hint="agentlip recover hub")
CHECKS = (
    Check(
        name="entries.deadlines", inspects="no inbox entry's deadline has passed unhandled",
        find=_deadlines, problems=(LATE,),
    ),
    Check(
        name="entries.messages", inspects="each inbox entry's message exists", find=_messages,
        problems=(LOST,),
    ),
)  # fmt: skip
