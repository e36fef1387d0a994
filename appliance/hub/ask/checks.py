"""Checks asks: deadlines that nothing has settled."""

from collections.abc import Iterator

from appliance.checks.check import FINDINGS_MAX, Check, Finding, Problem
from appliance.checks.context import Context
from appliance.kernel.steady_clock import steady_ms

LATE_MS = 60_000  # the loop that settles asks is never that late
_OVERDUE = "SELECT id FROM x_asks WHERE state = 'waiting' AND due_steady_ms < ? LIMIT ?"


def _deadlines(context: Context) -> Iterator[Finding]:
    for connection in context.with_tables("hub", "x_asks"):
        late_ms = steady_ms(connection, context.clock) - LATE_MS
        for (ask_id,) in connection.execute(_OVERDUE, (late_ms, FINDINGS_MAX)):
            yield OVERDUE.finding(f"ask {ask_id}", "still waits, although the deadline has passed")


OVERDUE = Problem("overdue", hint="agentlipd up")
CHECKS = (
    Check(
        name="ask.deadlines", inspects="no ask waits longer than its deadline", find=_deadlines,
        problems=(OVERDUE,),
    ),
)  # fmt: skip
