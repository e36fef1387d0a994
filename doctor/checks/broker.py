"""The broker: its promise holds for every row, and meshes keep ids for long enough."""

from collections.abc import Iterator

from appliance.broker.inspect import orphans
from appliance.broker.retention import is_misconfigured
from doctor.check import Check, Context, Cost, Finding, Severity

FANOUT_MS = 300_000


def _orphans(context: Context) -> Iterator[Finding]:
    before_ms = context.clock.now_ms() - FANOUT_MS
    most = context.settings.findings_max + 1
    for _, connection in context.opened("broker"):
        for found in orphans(connection, before_ms, most)[:most]:
            yield Finding(
                Severity.ERROR,
                f"message {found.broker_message_id}",
                f"{found.sentence} ({found.rule})",
                "agentlip broker orphans --json; keep the output and a copy of broker.sqlite3",
            )


def _retention(context: Context) -> Iterator[Finding]:
    for _, connection in context.opened("broker"):
        rows = connection.execute(
            "SELECT slug, dedupe_mode, dedupe_retention_days, message_retention_days FROM mesh"
            " ORDER BY slug"
        ).fetchmany(10_000)
        for slug, mode, dedupe_days, message_days in rows:
            if is_misconfigured(mode, dedupe_days, message_days):
                yield Finding(
                    Severity.WARNING,
                    f"mesh {slug}",
                    f"ids are remembered for {dedupe_days} days and messages for {message_days}:"
                    " the same send could be stored twice",
                    f"agentlip mesh update {slug} --dedupe-days {message_days}",
                )


CHECKS = (
    Check(
        name="broker.retention",
        inspects="ids of sends are remembered for as long as their messages",
        find=_retention,
    ),
    Check(
        name="broker.orphans",
        inspects="every id that is used up has its message, history and deliveries",
        cost=Cost.EXPENSIVE,
        find=_orphans,
    ),
)
