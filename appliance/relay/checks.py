"""Checks the relay: admins, key log, groups, waiting agents, codes that pile up, clocks."""

from collections.abc import Iterator

from appliance.checks.check import FINDINGS_MAX, Check, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.checks.rows import RowRule, find_rows
from appliance.checks.sections import section
from appliance.kernel.clock import DAY_MS
from appliance.relay.settings import RelaySettings

WAITING_MS = 3 * DAY_MS
CODES_MAX = 200
FUTURE_MS = 300_000
NO_ADMIN = Problem("no-admin", hint="agentlip relay admins add NAME --new-key FILE")
WAITING = Problem("waiting", hint="agentlip relay pending")
CODES = Problem("codes", hint="agentlip doctor --run relay.codes")
FUTURE = Problem("future", hint="timedatectl; date -u")
KEY_LOG = Problem("key-log", Severity.ERROR, hint="agentlip relay audit")
GROUPS = Problem("groups", Severity.ERROR, hint="agentlip relay audit")
TOO_FEW = Problem("too-few", hint="agentlip relay admins add NAME --new-key FILE")
_find_without_admin = find_rows(
    "relay",
    RowRule(
        NO_ADMIN,
        "SELECT count(*) FROM agents WHERE NOT EXISTS"
        " (SELECT 1 FROM admins WHERE removed_ms IS NULL)"
        " GROUP BY 1 = 1 HAVING count(*) > 0",
        "relay",
        "{0} agents are registered, and no admin",
        ("agents", "admins"),
    ),
)


def _admins(context: Context) -> Iterator[Finding]:
    settings = section(context.datadir.settings_file, "relay", RelaySettings)
    needed = 1 if settings is None else settings.approvals
    for connection in context.with_tables("relay", "admins"):
        (admins,) = connection.execute(
            "SELECT count(*) FROM admins WHERE removed_ms IS NULL"
        ).fetchone()
        if 0 < admins < needed:
            text = f"an approval needs {needed} admins, and the relay has {admins}"
            yield TOO_FEW.finding("relay", text)
    yield from _find_without_admin(context)


def _key_log(context: Context) -> Iterator[Finding]:
    for connection in context.with_tables("relay", "key_log", "agents"):
        from appliance.relay import key_log  # needs the key library

        for problem in key_log.find_problems(connection)[:FINDINGS_MAX]:
            yield KEY_LOG.finding("key log", problem)


def _groups(context: Context) -> Iterator[Finding]:
    for connection in context.with_tables("relay", "groups", "group_members", "group_changes"):
        from appliance.relay import group_audit  # needs the key library

        for problem in group_audit.find_problems(connection)[:FINDINGS_MAX]:
            yield GROUPS.finding("groups", problem)


CHECKS = (
    Check(
        name="relay.admins", inspects="the relay has enough admins", find=_admins,
        problems=(NO_ADMIN, TOO_FEW),
    ),
    Check(
        name="relay.keys", inspects="the key log is whole, and agrees with the agents' keys",
        find=_key_log, problems=(KEY_LOG,),
    ),
    Check(
        name="relay.groups", inspects="each group has an owner, and members that its log confirms",
        find=_groups, problems=(GROUPS,),
    ),
    Check(
        name="relay.pending",
        inspects="no agent waits long for an admin",
        find=find_rows(
            "relay",
            RowRule(
                WAITING,
                "SELECT count(*), min(created_ms) FROM agents WHERE status = 'pending'"
                f" AND created_ms < :now_ms - {WAITING_MS} HAVING count(*) > 0",
                "relay",
                "{0} agents wait for approval, since {1}",
                ("agents",),
                times=(1,),
            ),
        ),
        problems=(WAITING,),
    ),
    Check(
        name="relay.codes",
        inspects="verification codes don't pile up",
        find=find_rows(
            "relay",
            RowRule(
                CODES,
                "SELECT count(*) FROM verifications WHERE verified_ms IS NULL"
                f" HAVING count(*) > {CODES_MAX}",
                "relay",
                "{0} codes were mailed and not used",
                ("verifications",),
            ),
        ),
        problems=(CODES,),
    ),
    Check(
        name="relay.clock",
        inspects="no heartbeat is from the future",
        find=find_rows(
            "relay",
            RowRule(
                FUTURE,
                "SELECT count(*), max(last_seen_ms) FROM agents"
                f" WHERE last_seen_ms > :now_ms + {FUTURE_MS} HAVING count(*) > 0",
                "relay",
                "{0} agents were last seen in the future, up to {1}",
                ("agents",),
                times=(1,),
            ),
        ),
        problems=(FUTURE,),
    ),
)  # fmt: skip
