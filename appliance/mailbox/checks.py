"""Checks of the agents of the network: their folders, keys of contacts, endpoints, and clocks."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from appliance.checks.check import FINDINGS_MAX, Check, Finding, Problem, Severity
from appliance.checks.context import Context, open_read_only
from appliance.kernel import meta
from appliance.kernel.errors import ApplianceError

SKEW_SECONDS = 60.0
SKEW_SECONDS_MAX = 300.0  # the relay and other agents refuse what is further away
DAMAGED = "if it is damaged, move it away: mv {0} {0}.aside"
_CHANGED = "SELECT agent FROM pins WHERE offered IS NOT NULL ORDER BY agent LIMIT ?"


class _CachedNames(msgspec.Struct):
    contacts: dict[str, msgspec.Raw] = {}


def _folders(context: Context) -> list[Path]:
    return [file.parent for file in sorted(context.datadir.dir.glob("network/*/agent.json"))]


def _agents(context: Context) -> Iterator[Finding]:
    for path in _folders(context):
        from appliance.sdk.network.folder import AgentFolder  # needs the library of its keys

        try:
            AgentFolder(path).config()
            AgentFolder(path).key()
            with closing(open_read_only(path / "state.sqlite3")) as connection:
                connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except ApplianceError as error:
            yield UNUSABLE.finding(f"agent {path.name}", error.message, error.hint)
        except sqlite3.Error as error:
            if (path / "state.sqlite3").exists():  # an agent that was never used has none
                hint = DAMAGED.format(path / "state.sqlite3")
                yield UNUSABLE.finding(f"agent {path.name}", f"state.sqlite3: {error}", hint)


def _keys(context: Context) -> Iterator[Finding]:
    for path in _folders(context):
        try:
            with closing(open_read_only(path / "state.sqlite3")) as connection:
                yield from _keys_of(path, connection)
        except sqlite3.Error:  # another check reports it
            continue


def _keys_of(path: Path, connection: sqlite3.Connection) -> Iterator[Finding]:
    changed = (
        connection.execute(_CHANGED, (FINDINGS_MAX,)) if meta.exists(connection, "pins") else ()
    )
    for (contact,) in changed:
        yield CHANGED.finding(
            f"agent {path.name}: {contact}",
            "the relay shows another key than before, so nothing is sent to it",
            f"agentlip network verify {contact} --folder {path}",
        )
    if not meta.exists(connection, "revoked"):
        return
    try:
        cached = msgspec.json.decode((path / "cache.json").read_bytes(), type=_CachedNames)
    except (OSError, ValueError):  # the agent makes it again
        return
    for (contact,) in connection.execute("SELECT agent FROM revoked ORDER BY agent"):
        if contact in cached.contacts:
            yield REVOKED.finding(
                f"agent {path.name}: {contact}", "it was revoked, and its key is in the cache"
            )


def _links(context: Context) -> Iterator[Finding]:
    failed, unreachable = (
        int(context.number(f"network.{fact}") or 0) for fact in ("relay_failed", "unreachable")
    )
    if failed:
        yield NO_RELAY.finding("relay", f"the last heartbeat of {failed} agents failed")
    if unreachable:
        text = f"{unreachable} contacts did not respond to the last message to them"
        yield UNREACHABLE.finding("contacts", text)


def _clock(context: Context) -> Iterator[Finding]:
    seconds = context.number("network.skew_seconds") or 0.0
    if seconds > SKEW_SECONDS:
        severity = Severity.ERROR if seconds > SKEW_SECONDS_MAX else Severity.WARNING
        text = f"this clock and the relay's are {seconds:.0f} seconds apart"
        yield SKEW.finding("clock", text, severity=severity)


UNUSABLE = Problem("unusable", Severity.ERROR)
CHANGED = Problem("key-changed")
REVOKED = Problem("revoked", hint="agentlipd up")
NO_RELAY = Problem("relay", hint="agentlipd logs")
UNREACHABLE = Problem("unreachable", hint="agentlip outbox list")
SKEW = Problem("skew", hint="timedatectl; date -u")
CHECKS = (
    Check(
        name="network.agents",
        inspects="every agent of the network has a readable folder and a private key",
        find=_agents,
        problems=(UNUSABLE,),
    ),
    Check(
        name="network.keys",
        inspects="no contact has a changed key, or was revoked",
        find=_keys,
        problems=(CHANGED, REVOKED),
    ),
    Check(
        name="network.links",
        inspects="the relay and the contacts of the agents can be reached",
        find=_links,
        problems=(NO_RELAY, UNREACHABLE),
    ),
    Check(
        name="network.clock",
        inspects="the clock is that of the relay",
        find=_clock,
        problems=(SKEW,),
    ),
)
