"""Checks that durable streams of the courier are not larger than their limits."""

import os
from collections.abc import Iterator

import msgspec

from appliance.courier.settings import CourierSettings
from appliance.kernel import config, meta
from doctor.check import Check, Cost, Finding, Problem, Severity
from doctor.context import Context


class _CourierSection(msgspec.Struct, frozen=True):
    """Only [courier]; another check reports other mistakes in the file."""

    courier: CourierSettings = CourierSettings()


def _limits(context: Context) -> Iterator[Finding]:
    try:
        settings = config.load(_CourierSection, context.datadir.settings_file, os.environ).courier
    except config.BadSettings:
        return
    for _, connection in context.opened("courier"):
        if not meta.exists(connection, "journal"):
            continue
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
                    yield Finding(
                        Severity.WARNING,
                        f"stream {stream}",
                        f"its journal has {used} {words}, but the stream is limited to {limit}",
                        "agentlip courier stats",
                        problem="over-limit",
                    )


CHECKS = (
    Check(
        name="courier.limits",
        inspects="the journals of durable streams are within the streams' limits",
        cost=Cost.EXPENSIVE,
        find=_limits,
        reads="all envelopes in `courier.sqlite3`, and the section [courier] of the settings",
        problems=(
            Problem(
                "over-limit",
                "The limit was lowered, or another program wrote to the store. New envelopes are"
                " refused or replace old ones, as the stream's overflow policy says.",
                "Let consumers take the envelopes, purge the stream, or raise its limit.",
            ),
        ),
    ),
)
