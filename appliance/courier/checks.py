"""Checks the courier: full streams, waiting envelopes, memory, journals."""

from collections.abc import Iterator

from appliance.checks.check import COPY, Check, Cost, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.checks.rows import RowRule, find_rows
from appliance.checks.sections import section
from appliance.courier.settings import CourierSettings

OLDEST_READY_SECONDS = 3600.0  # consumers may pause for less
_STATS = "agentlip courier stats"
_DURABLE = "declare a pattern durable: docs/reference/courier.md"


def _capacity(context: Context) -> Iterator[Finding]:
    full = context.number("courier.full")
    if full:
        streams = context.number("courier.streams") or 0
        yield FULL.finding("courier", f"{full:.0f} of {streams:.0f} streams are at least 90% full")


def _waiting(context: Context) -> Iterator[Finding]:
    oldest = context.number("courier.oldest_ready_seconds") or 0.0
    if oldest > OLDEST_READY_SECONDS:
        yield WAITING.finding(
            "courier", f"an envelope has been ready for {oldest:.0f} s without being delivered"
        )
    dead = context.number("courier.dead")
    if dead:
        yield DEAD_LETTERS.finding("courier", f"dead letters: {dead:.0f}")
    paused = context.number("courier.paused")
    if paused:
        yield PAUSED.finding("courier", f"paused streams: {paused:.0f}")


def _memory(context: Context) -> Iterator[Finding]:
    envelopes = context.number("courier.memory_envelopes")
    if envelopes:
        parked = context.number("courier.memory_parked") or 0
        no_consumer = f"; {parked:.0f} streams in use have no consumer" if parked else ""
        yield MEMORY_ONLY.finding(
            "courier",
            f"{envelopes:.0f} envelopes are in memory only and are lost at a restart{no_consumer}",
        )


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


FULL = Problem("full", hint=_STATS)
WAITING = Problem("waiting", hint=_STATS)
DEAD_LETTERS = Problem("dead-letters", Severity.INFO, hint=_STATS)
PAUSED = Problem("paused", Severity.INFO, hint=_STATS)
MEMORY_ONLY = Problem("memory-only", Severity.INFO, hint=_DURABLE)
ALTERED = Problem("altered", Severity.ERROR, hint=COPY)
OVER_LIMIT = Problem("over-limit", hint="agentlip courier stats")
CHECKS = (
    Check(
        name="courier.room", inspects="streams are less than 90% full", ready=True, find=_capacity,
        problems=(FULL,),
    ),
    Check(
        name="courier.waiting",
        inspects="envelopes are delivered in time; dead letters and paused streams", ready=True,
        find=_waiting, problems=(WAITING, DEAD_LETTERS, PAUSED),
    ),
    Check(
        name="courier.memory",
        inspects="envelopes that are in memory only and would be lost at a restart",
        find=_memory,
        problems=(MEMORY_ONLY,),
    ),
    Check(
        name="courier.journal",
        inspects="every envelope in a durable stream is readable",
        cost=Cost.EXPENSIVE,
        find=find_rows(
            "courier",
            RowRule(
                ALTERED,
                "SELECT number, stream FROM journal WHERE CASE WHEN json_valid(CAST(body AS TEXT))"
                " THEN json_extract(CAST(body AS TEXT), '$.id') IS NOT id ELSE 1 END",
                "courier.journal",
                "journal row {0} of stream {1} does not contain its envelope",
                ("journal",),
            ),
        ),
        problems=(ALTERED,),
    ),
    Check(
        name="courier.limits",
        inspects="the durable streams' journals are within the streams' limits",
        cost=Cost.EXPENSIVE, find=_limits, problems=(OVER_LIMIT,),
    ),
)  # fmt: skip
