"""Checks that durable streams of the courier are not larger than their limits."""

from collections.abc import Iterator

from appliance.checks.check import Check, Cost, Finding, Problem
from appliance.checks.context import Context
from appliance.checks.sections import section
from appliance.courier.settings import CourierSettings


def _limits(context: Context) -> Iterator[Finding]:
    settings = section(context.datadir.settings_file, "courier", CourierSettings)
    if settings is None:
        return
    for connection in context.with_tables("courier", "journal"):
        rows = connection.execute(
            "SELECT stream, count(*), sum(length(body)) FROM journal WHERE reason IS NULL"
            " GROUP BY stream ORDER BY stream"
        )
        for stream, count, size in rows:
            policy = settings.policy_of(stream)
            for used, limit, words in (
                (count, policy.depth_max, "envelopes"),
                (size, policy.bytes_max, "bytes"),
            ):
                if used > limit:
                    yield OVER_LIMIT.finding(
                        f"stream {stream}",
                        f"its journal has {used} {words}, but the stream is limited to {limit}",
                    )


OVER_LIMIT = Problem(
    "over-limit",
    "The limit was lowered, or another program wrote to the store. New envelopes are refused or"
    " replace old ones, as the stream's overflow policy says.",
    "Let consumers take the envelopes, purge the stream, or raise its limit.",
    hint="agentlip courier stats",
)
CHECKS = (
    Check(
        name="courier.limits",
        inspects="the journals of durable streams are within the streams' limits",
        cost=Cost.EXPENSIVE,
        find=_limits,
        reads="all envelopes in `courier.sqlite3`, and the section [courier] of the settings",
        problems=(OVER_LIMIT,),
    ),
)
