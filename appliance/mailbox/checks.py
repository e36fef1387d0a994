"""Checks the network agents: folders, contact keys, endpoints, and clocks."""

import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from appliance.checks.check import FINDINGS_MAX, Check, Finding, Problem, Severity
from appliance.checks.context import Context, open_read_only
from appliance.kernel.errors import ApplianceError
from appliance.workspace import manifest

SKEW_SECONDS = 60.0
SKEW_SECONDS_MAX = 300.0  # the relay and all agents refuse larger differences
# The present files stay: a complete restore would replace newer messages.
RESTORED = (
    "agentlip backup restore --latest --into restored --yes && mkdir -p .agentlip/{0} && cp -an"
    " restored/.agentlip/{0} .agentlip/network/; rm -rf restored"
    " # or, if it was removed on purpose: agentlipd restart --accept-loss {0}"
)
DAMAGED = "if damaged, move it away: mkdir -p {0}/damaged; mv {0}/state.sqlite3* {0}/damaged"
_CHANGED = "SELECT agent FROM pins WHERE offered IS NOT NULL ORDER BY agent LIMIT ?"
_REFUSED_GROUPS = "SELECT group_id FROM group_heads WHERE refused = 1 ORDER BY 1 LIMIT ?"
_REFUSED = "SELECT value FROM cursors WHERE name = 'key_log_problem' AND value <> ''"


class _CachedNames(msgspec.Struct):
    contacts: dict[str, msgspec.Raw] = {}


def _folders(context: Context) -> list[Path]:
    return [path for path in sorted(context.datadir.dir.glob("network/*")) if path.is_dir()]


def _agents(context: Context) -> Iterator[Finding]:
    lost = manifest.lost_files(context.datadir)
    for folder, names in lost.items():
        hint = RESTORED.format(folder)
        yield LOST.finding(f"agent {Path(folder).name}", f"missing: {', '.join(names)}", hint)
    for path in _folders(context):
        if f"network/{path.name}" in lost:
            continue
        from appliance.sdk.network.folder import AgentFolder  # needs the key library
        from appliance.sdk.network.relay_client import check_relay

        try:
            config = AgentFolder(path).config()
            if not config.plain_http:
                check_relay(config.relay)
            AgentFolder(path).key()
            with closing(open_read_only(path / "state.sqlite3")) as connection:
                (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                if result != "ok":
                    raise sqlite3.DatabaseError(f"damaged: {result}")
        except ApplianceError as error:
            # A repair closes the files that host.private reports too.
            severity = Severity.WARNING if error.code == "KEY_EXPOSED" else None
            yield UNUSABLE.finding(f"agent {path.name}", error.message, error.hint, severity)
        except sqlite3.Error as error:
            if (path / "state.sqlite3").exists():  # an agent that was never used has none
                hint = DAMAGED.format(shlex.quote(str(path)))
                yield UNUSABLE.finding(f"agent {path.name}", f"state.sqlite3: {error}", hint)


def _keys(context: Context) -> Iterator[Finding]:
    for path in _folders(context):
        try:
            with closing(open_read_only(path / "state.sqlite3")) as connection:
                yield from _keys_of(path, connection)
        except sqlite3.Error:  # reported by another check
            continue


def _keys_of(path: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    for (contact,) in connection.execute(_CHANGED, (FINDINGS_MAX,)):
        yield CHANGED.finding(
            f"agent {path.name}: {contact}",
            "the relay shows another key than before, so nothing is sent to it",
            f"agentlip network verify {contact} --folder {path}",
        )
    for (problem,) in connection.execute(_REFUSED):
        yield KEY_LOG.finding(f"agent {path.name}", problem)
    for (group_id,) in connection.execute(_REFUSED_GROUPS, (FINDINGS_MAX,)):
        yield GROUP_LOG.finding(
            f"agent {path.name}: group {group_id}",
            "the relay's log does not continue the log seen before, so the group is not used",
            f"agentlip network group changes {group_id} --folder {path}",
        )
    try:
        cached = msgspec.json.decode((path / "cache.json").read_bytes(), type=_CachedNames)
    except (OSError, ValueError):  # made again by the agent
        return
    for (contact,) in connection.execute("SELECT agent FROM revoked ORDER BY agent"):
        if contact in cached.contacts:
            yield REVOKED.finding(
                f"agent {path.name}: {contact}",
                "revoked, but the cache still has its key",
            )


def _links(context: Context) -> Iterator[Finding]:
    failed, unreachable = (
        int(context.number(f"network.{fact}") or 0) for fact in ("relay_failed", "unreachable")
    )
    if failed:
        yield NO_RELAY.finding("relay", f"the last heartbeat from {failed} agents failed")
    if unreachable:
        text = f"{unreachable} contacts did not respond to the last message to them"
        yield UNREACHABLE.finding("contacts", text)


def _clock(context: Context) -> Iterator[Finding]:
    seconds = context.number("network.skew_seconds") or 0.0
    if seconds > SKEW_SECONDS:
        severity = Severity.ERROR if seconds > SKEW_SECONDS_MAX else Severity.WARNING
        text = f"this clock and the relay's are {seconds:.0f} seconds apart"
        yield SKEW.finding("clock", text, severity=severity)


LOST = Problem("lost", Severity.ERROR)
UNUSABLE = Problem("unusable", Severity.ERROR)
CHANGED = Problem("key-changed")
KEY_LOG = Problem("key-log", Severity.ERROR, hint="agentlip network key-log")
GROUP_LOG = Problem("group-log", Severity.ERROR)
REVOKED = Problem("revoked", hint="agentlipd up")
NO_RELAY = Problem("relay", hint="agentlipd logs")
UNREACHABLE = Problem("unreachable", hint="agentlip outbox list")
SKEW = Problem("skew", hint="timedatectl; date -u")
CHECKS = (
    Check(
        name="network.agents",
        inspects="every network agent has readable files and a private key",
        find=_agents, always=True, problems=(LOST, UNUSABLE),
    ),
    Check(
        name="network.keys",
        inspects="no contact has a changed key or was revoked, and the relay's logs go on",
        find=_keys, problems=(CHANGED, KEY_LOG, GROUP_LOG, REVOKED),
    ),
    Check(
        name="network.links", inspects="the relay and the agents' contacts can be reached",
        find=_links, problems=(NO_RELAY, UNREACHABLE),
    ),
    Check(
        name="network.clock", inspects="the clock agrees with the relay's clock", find=_clock,
        problems=(SKEW,),
    ),
)  # fmt: skip
