"""Checks of the outbox: claims of ended processes, and sends near their limit."""

from collections.abc import Iterator

from appliance.checks.check import Check, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.checks.sections import section
from appliance.outbox.settings import OutboxSettings

_NEAR = 0.8
_REFUSED = 0.95  # new sends are refused from here
CLAIMED = "SELECT count(*), min(id) FROM outbox WHERE status = 'inflight'"
OPEN = (
    "SELECT (SELECT count(*) FROM outbox WHERE status = 'pending')"
    " + (SELECT count(*) FROM outbox WHERE status = 'inflight')"
)


def _claims(context: Context) -> Iterator[Finding]:
    """While an appliance runs, claims are its own."""
    if context.lock().held:
        return
    for connection in context.with_tables("outbox", "outbox"):
        count, first = connection.execute(CLAIMED).fetchone()
        if count:
            yield LEFT_BEHIND.finding(
                f"send {first}",
                f"{count} sends were being delivered when the appliance ended; the next start"
                " delivers them again, and receivers recognize them by their ids",
            )


def _room(context: Context) -> Iterator[Finding]:
    settings = section(context.datadir.settings_file, "outbox", OutboxSettings)
    if settings is None:
        return
    for connection in context.with_tables("outbox", "outbox"):
        (count,) = connection.execute(OPEN).fetchone()
        size = context.datadir.database("outbox").stat().st_size
        for used, limit, words in (
            (count, settings.sends_max, "undelivered sends"),
            (size, settings.bytes_max, "bytes of the database file"),
        ):
            share = used / limit
            if share >= _NEAR:
                refused = "; new sends are refused" if share >= _REFUSED else ""
                yield FULL.finding(
                    "outbox",
                    f"{used} of at most {limit} {words}{refused}",
                    severity=Severity.ERROR if refused else Severity.WARNING,
                )


LEFT_BEHIND = Problem(
    "left-behind",
    "The appliance was killed while it delivered. Nothing is lost.",
    "Nothing has to be done: the next start returns the sends to the queue.",
    Severity.INFO,
    hint="agentlipd up",
)
FULL = Problem(
    "full",
    "From 95 % of a limit on, the outbox refuses new sends.",
    "Repair what keeps sends from being delivered, or raise `outbox.sends_max` or"
    " `outbox.bytes_max`.",
    hint="agentlip outbox status",
)
CHECKS = (
    Check(
        name="outbox.claims",
        inspects="no ended process left sends that it was delivering",
        find=_claims,
        reads="the sends with the state `inflight` in `outbox.sqlite3`, if no appliance runs",
        problems=(LEFT_BEHIND,),
    ),
    Check(
        name="outbox.room",
        inspects="undelivered sends and the file are below 80 % of their limits",
        find=_room,
        reads="the number of open sends, the size of `outbox.sqlite3`, and the section [outbox]",
        problems=(FULL,),
    ),
)
