"""Reports a workspace's hub state, in JSON for machines and in lines for people."""

import os
import shlex
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from appliance.cli_support import EXIT_UNAVAILABLE
from appliance.kernel.clock import SystemClock, iso
from appliance.kernel.errors import ApplianceError
from appliance.kernel.json_file import read_json
from appliance.operations.wire import MaintenanceRecord
from appliance.process.starting import phase_of
from appliance.sdk.database import WorkspaceDatabase
from appliance.sdk.discovery import (
    Endpoint,
    Health,
    HubNotRunning,
    StaleServerFile,
    ask_health,
    ask_ready,
    local,
    remote,
)
from appliance.workspace.datadir import DataDir, ServerFile, find_workspace, read_lock

State = dict[str, Any]


def find_state(workspace: Path | None) -> State:
    """Return the state of the hub that commands use: a workspace's, or the one at AGENTLIP_URL."""
    if workspace is not None or not os.environ.get("AGENTLIP_URL"):
        return hub_state(find_workspace(workspace))
    endpoint = remote(os.environ)
    state = {"status": "unreachable", "url": endpoint.url}
    health = ask_health(endpoint)
    if health is None:
        return state
    return {**msgspec.to_builtins(health), **state, "status": "running", **_readiness(endpoint)}


def hub_state(datadir: DataDir) -> State:
    """Return a workspace's hub state. Does not fail if no hub runs."""
    state: State = {"status": "stopped", "workspace": str(datadir.workspace)}
    try:
        endpoint, health = local(datadir, os.environ)
        state |= _running(datadir, endpoint, health)
        state |= _readiness(endpoint)
        record = read_json(datadir.dir / "maintenance.json", MaintenanceRecord)
        until_ms = record.until_ms if record else 0
        state |= {"maintenance_until": iso(until_ms)} if until_ms > SystemClock().now_ms() else {}
    except StaleServerFile as error:
        state |= {"status": "stale", "reason": error.message, "hint": error.hint}
    except HubNotRunning as error:
        state |= {"reason": error.message, "hint": error.hint}
    lock = read_lock(datadir)
    if state["status"] != "running" and lock.held:
        pid = lock.written.pid if lock.written else 0
        state |= {"status": "unresponsive", "pid": pid, **_why_unresponsive(datadir, pid)}
    if state["status"] != "running" or state["db_id"]:
        state |= _log_facts(datadir)
    return state


def _why_unresponsive(datadir: DataDir, pid: int) -> State:
    phase = phase_of(datadir, pid)
    if phase:
        return {"reason": f"the appliance is {phase}", "hint": "wait until it ends: agentlipd logs"}
    reason = "the writer lock is held, but no server responds"
    return {"reason": reason, "hint": "agentlip doctor"}


def _running(datadir: DataDir, endpoint: Endpoint, health: Health) -> State:
    server = datadir.read_server() or ServerFile(host=endpoint.host)
    return {
        "status": "running",
        "instance_id": health.instance_id or server.instance_id,
        "db_id": health.db_id or server.db_id,
        "schema_version": health.schema_version,
        "protocol_version": health.protocol_version,
        "host": server.host,
        "port": endpoint.port,
        "url": endpoint.url,
        "pid": health.pid or server.pid,
        "uptime_seconds": health.uptime_seconds,
        "token_file": str(datadir.token_file),
    }


def _readiness(endpoint: Endpoint) -> State:
    """Return the `/-/ready` report: whether the hub serves requests, and if not, why."""
    readiness = ask_ready(endpoint)
    state: State = {"ready": readiness.ready, "failing": readiness.failing}
    state |= {"suspended": readiness.suspended} if readiness.suspended else {}
    if readiness.ready:
        return state
    critical = [row for row in readiness.findings or () if row["severity"] == "critical"]
    reasons = ["{check}: {subject}: {sentence}".format(**row) for row in critical]
    reason = "; ".join(reasons) or ", ".join(readiness.failing) or "/-/ready does not respond"
    hints = [row["hint"] for row in critical if row.get("hint")]
    return {**state, "reason": reason, "hint": hints[0] if hints else "agentlip doctor"}


def exit_code(state: State) -> int:
    """Return 0 if the hub runs and is ready, otherwise 3."""
    return 0 if state["status"] == "running" and state["ready"] else EXIT_UNAVAILABLE


def _log_facts(datadir: DataDir) -> State:
    try:
        with WorkspaceDatabase(datadir.database("hub")) as reader:
            return reader.counts()
    except ApplianceError:
        return {}  # the state is useful without the facts


def summary_line(state: State) -> str:
    """Return one line, for a prompt or a log: `running http://127.0.0.1:7464 events=42
    messages=17`."""
    facts = [state["status"]]
    if not state.get("ready", True):
        facts += [f"not-ready={','.join(state['failing']) or 'unknown'}"]
    facts += [state["url"]] if "url" in state else []
    facts += ["writes-refused"] if "maintenance_until" in state else []
    facts += [f"events={state['last_event_id']}"] if "last_event_id" in state else []
    facts += [f"messages={state['messages']}"] if "messages" in state else []
    facts += [f"workspace={state['workspace']}"] if "workspace" in state else []
    return " ".join(facts)


def describe(state: State) -> str:
    if state["status"] != "running":
        lines = [f"Status: {state['status']}", f"Workspace: {state['workspace']}"]
        lines += [f"Reason: {state['reason']}"] if "reason" in state else []
        lines += [f"Hint: {state['hint']}"] if "hint" in state else []
        return "\n".join(lines)
    lines = ["Status: running"]
    if not state["ready"]:
        lines = ["Status: running, not ready"]
        lines += [f"Reason: {state['reason']}", f"Hint: {state['hint']}"]
    if "maintenance_until" in state:
        lines += [f"Maintenance: writes are refused until {state['maintenance_until']}"]
    return "\n".join(
        [
            *lines,
            *([f"Suspended: {', '.join(state['suspended'])}"] if "suspended" in state else []),
            f"Instance ID: {state['instance_id']}",
            f"Port: {state['port']}",
            f"PID: {state['pid']}",
            f"Uptime: {timedelta(seconds=int(state['uptime_seconds']))}",
            *([f"Schema version: {state['schema_version']}"] if state["db_id"] else []),
            f"Protocol version: {state['protocol_version']}",
            f"URL: {state['url']}",
            f"Workspace: {state['workspace']}",
        ]
    )


def welcome(state: State, link: str = "") -> str:
    """Return the text after a start: addresses, token file and three commands. `link` signs in."""
    there = f" --workspace {shlex.quote(state['workspace'])}"
    began = "already running" if state.get("already_running") else "running"
    not_ready = [] if state["ready"] else [f"  It is not ready: {state['reason']}"]
    commands = [
        f"  agentlip channel create general{there}",
        f"  agentlip topic create --channel general hello{there}",
        f"  agentlip msg send --channel general --topic hello --sender me --content 'Hello'{there}",
    ]
    if not state["db_id"]:  # the hub is switched off
        commands = [f"  agentlip status{there}"]
    return "\n".join(
        [
            f"Agentlip is {began} (pid {state['pid']}).",
            *not_ready,
            f"  API    {state['url']}",
            f"  UI     {link or state['url'] + '/ui/'}",
            f"  token  {state['token_file']}",
            "Try:",
            *commands,
        ]
    )
