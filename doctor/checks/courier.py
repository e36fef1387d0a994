"""The courier: streams have room, nothing waits for ever, and what memory holds is said."""

from collections.abc import Iterator

from doctor.check import Check, Context, Cost, Finding, Severity

_STATS = "agentlip courier stats"
_DURABLE = "declare a pattern durable: docs/courier.md"
_BROKEN_MAX = 10


def _room(context: Context) -> Iterator[Finding]:
    full = context.number("courier.full")
    if full:
        yield Finding(
            Severity.WARNING,
            "courier",
            f"{full:.0f} of {context.number('courier.streams') or 0:.0f} streams hold nine tenths"
            " of what they may, or more",
            _STATS,
        )


def _waiting(context: Context) -> Iterator[Finding]:
    oldest = context.number("courier.oldest_ready_seconds") or 0.0
    if oldest > context.settings.oldest_ready_warning_seconds:
        yield Finding(
            Severity.WARNING,
            "courier",
            f"an envelope has been ready for {oldest:.0f} s, and nobody took it",
            _STATS,
        )
    dead = context.number("courier.dead")
    if dead:
        yield Finding(
            Severity.INFO,
            "courier",
            f"{dead:.0f} dead letters wait for somebody to look at them",
            "agentlip courier dlq list STREAM",
        )
    paused = context.number("courier.paused")
    if paused:
        yield Finding(
            Severity.INFO, "courier", f"{paused:.0f} streams are paused", "agentlip courier resume"
        )


def _memory(context: Context) -> Iterator[Finding]:
    held = context.number("courier.memory_envelopes")
    if held:
        parked = context.number("courier.memory_parked") or 0
        nobody = f"; nobody receives from {parked:.0f} of their streams" if parked else ""
        yield Finding(
            Severity.INFO,
            "courier",
            f"{held:.0f} envelopes are in memory only and end with the process{nobody}",
            _DURABLE,
        )


def _journal(context: Context) -> Iterator[Finding]:
    for store, connection in context.opened("courier"):
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'journal'").fetchone():
            continue
        broken = connection.execute(
            "SELECT number, stream FROM journal WHERE CASE WHEN json_valid(CAST(body AS TEXT))"
            " THEN json_extract(CAST(body AS TEXT), '$.id') IS NOT id ELSE 1 END"
        ).fetchmany(_BROKEN_MAX)
        for number, stream in broken:
            yield Finding(
                Severity.ERROR,
                f"{store}.journal",
                f"row {number} of stream {stream} is not the envelope that it should be",
                "stop the appliance and put a snapshot back; see .agentlip/backups",
            )


CHECKS = (
    Check(name="courier.room", inspects="no stream is at its cap", ready=True, find=_room),
    Check(
        name="courier.waiting",
        inspects="nothing has been ready for too long; dead letters and pauses are known",
        ready=True,
        find=_waiting,
    ),
    Check(
        name="courier.memory",
        inspects="what is in memory only, and would be lost with the process",
        find=_memory,
    ),
    Check(
        name="courier.journal",
        inspects="every envelope of a durable stream can be read",
        cost=Cost.EXPENSIVE,
        find=_journal,
    ),
)
