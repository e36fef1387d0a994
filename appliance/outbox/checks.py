"""Checks the outbox: dead letters, waiting sends, capacity, lost ids."""

import shlex
from collections.abc import Iterator

from appliance.checks.check import FINDINGS_MAX, Check, Cost, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.checks.fingerprints import find_altered
from appliance.checks.rows import RowRule, find_rows
from appliance.checks.sections import section
from appliance.kernel.clock import HOUR_MS
from appliance.kernel.steady_clock import steady_ms
from appliance.outbox import pauses
from appliance.outbox.queries import LOST
from appliance.outbox.settings import OutboxSettings

WAITING_MS = HOUR_MS  # a broker may be away for less
_NEAR = 0.8
_REFUSED = 0.95  # new sends are refused from here
_UNDELIVERED = "status IN ('pending', 'inflight')"  # also while another attempt runs
OPEN = (
    "SELECT (SELECT count(*) FROM outbox WHERE status = 'pending')"
    " + (SELECT count(*) FROM outbox WHERE status = 'inflight')"
)


def _dead(context: Context) -> Iterator[Finding]:
    for connection in context.with_tables("outbox", "outbox"):
        rows = connection.execute(
            "SELECT mesh, sum(last_error IS NOT ?1), sum(last_error IS ?1) FROM outbox"
            " WHERE status = 'dead' GROUP BY mesh ORDER BY mesh",
            (LOST,),
        ).fetchmany(FINDINGS_MAX + 1)
        if count := sum(row[1] for row in rows):
            yield DEAD_LETTERS.finding("outbox", f"dead letters, which are not retried: {count}")
        for mesh, _, lost in rows:
            if lost:
                yield LOST_SENDS.finding(
                    f"mesh {mesh}",
                    f"{lost} sends were accepted by the mesh's broker before it was restored, and"
                    " are gone",
                    f"agentlip outbox redrive --lost --mesh {mesh}",
                )


def _waiting(context: Context) -> Iterator[Finding]:
    for connection in context.with_tables("outbox", "outbox"):
        now_ms = steady_ms(connection, context.clock)
        rows = connection.execute(
            "SELECT mesh, count(*), min(accepted_steady_ms) FROM outbox WHERE status = 'pending'"
            " AND accepted_steady_ms <= ? GROUP BY mesh ORDER BY mesh",
            (now_ms - WAITING_MS,),
        )
        for mesh, count, oldest_ms in rows:
            hours = (now_ms - oldest_ms) / HOUR_MS
            yield WAITING.finding(
                f"mesh {mesh}",
                f"{count} sends are undelivered, the oldest for {hours:.1f} hours",
                f"agentlip outbox status; agentlip outbox list --mesh {mesh} --status pending",
            )


def _find_paused(context: Context) -> Iterator[Finding]:
    for connection in context.with_tables("outbox", "meta"):
        now_ms = steady_ms(connection, context.clock)
        for name, end_ms in pauses.read_all(connection).items():
            if end_ms is None or end_ms > now_ms:
                hint = f"agentlip outbox resume {shlex.quote(name)}"
                yield PAUSED.finding(name, "deliveries are paused", hint)


def _fingerprints(context: Context) -> Iterator[Finding]:
    for connection in context.with_tables("outbox", "outbox"):
        rows = connection.execute(
            "SELECT id, request_fingerprint, destination_kind, destination_ref, payload,"
            " reply_to_id, priority, meta FROM outbox WHERE payload_dropped_at IS NULL ORDER BY id"
        )
        hint = "agentlip outbox inspect {0}; agentlip outbox drop {0}"
        yield from find_altered(rows, ALTERED, "send {0}", hint)


def _room(context: Context) -> Iterator[Finding]:
    settings = section(context.datadir.settings_file, "outbox", OutboxSettings)
    if settings is None:
        return
    for connection in context.with_tables("outbox", "outbox"):
        (count,) = connection.execute(OPEN).fetchone()
        size = context.datadir.database("outbox").stat().st_size
        for used, limit, words in (
            (count, settings.sends_max, "undelivered sends"),
            (size, settings.bytes_max, "database file bytes"),
        ):
            share = used / limit
            if share >= _NEAR:
                refused = "; new sends are refused" if share >= _REFUSED else ""
                yield FULL.finding(
                    "outbox",
                    f"{used} of at most {limit} {words}{refused}",
                    severity=Severity.ERROR if refused else Severity.WARNING,
                )


REFUSED = Problem("refused", hint="correct notify.to, then: agentlip notify test")
NOT_A_MEMBER = Problem("not-a-member", hint="agentlip identity show")
DEAD_LETTERS = Problem(
    "dead-letters",
    hint="agentlip outbox list --failed; agentlip outbox redrive --failed --auto --dry-run",
)
LOST_SENDS = Problem("lost")
WAITING = Problem("waiting")
PAUSED = Problem("paused", Severity.INFO)
BROKEN_CHAIN = Problem("broken-chain", Severity.ERROR)
ALTERED = Problem("altered", Severity.ERROR)
FULL = Problem("full", hint="agentlip outbox status")
CHECKS = (
    Check(
        name="outbox.dead", inspects="there are no dead letters", find=_dead,
        problems=(DEAD_LETTERS, LOST_SENDS),
    ),
    Check(
        name="outbox.waiting", inspects="no send is undelivered for hours", find=_waiting,
        problems=(WAITING,),
    ),
    Check(
        name="outbox.paused", inspects="an operator's pause is not forgotten", find=_find_paused,
        problems=(PAUSED,),
    ),
    Check(
        name="outbox.refused",
        inspects="no destination refuses messages to the operator, and no mesh the member key",
        find=find_rows(
            "outbox",
            RowRule(
                REFUSED,
                f"SELECT DISTINCT route, last_error FROM outbox WHERE {_UNDELIVERED}"
                " AND principal = 'appliance:notify'"
                " AND last_error GLOB 'the receiver responded with [34][0-9][0-9]*'",
                "{0}",
                "messages to the operator do not arrive: {1}",
                ("outbox",),
            ),
            RowRule(
                NOT_A_MEMBER,
                f"SELECT mesh, count(*), last_error FROM outbox WHERE {_UNDELIVERED}"
                " AND last_error GLOB '403: *MEMBER*' GROUP BY mesh, last_error ORDER BY mesh",
                "mesh {0}",
                "{1} sends wait until the mesh's broker has this appliance's key: {2}",
                ("outbox",),
            ),
        ),
        problems=(REFUSED, NOT_A_MEMBER),
    ),
    Check(
        name="outbox.chain",
        inspects="every redriven send has a successor",
        find=find_rows(
            "outbox",
            RowRule(
                BROKEN_CHAIN,
                "SELECT id, superseded_by FROM outbox AS old WHERE superseded_by IS NOT NULL AND"
                " NOT EXISTS (SELECT 1 FROM outbox AS new WHERE new.id = old.superseded_by)",
                "send {0}",
                "its successor {1} does not exist",
                ("outbox",),
            ),
        ),
        problems=(BROKEN_CHAIN,),
    ),
    Check(
        name="outbox.fingerprints", inspects="every stored send matches its fingerprint",
        cost=Cost.EXPENSIVE, find=_fingerprints, problems=(ALTERED,),
    ),
    Check(
        name="outbox.room",
        inspects="undelivered sends and the file are below 80 % of the limits",
        find=_room,
        problems=(FULL,),
    ),
)  # fmt: skip
