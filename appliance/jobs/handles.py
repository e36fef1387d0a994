"""Finds an attempt again by its handle, in a later process or in one without the server."""

from pathlib import Path

LABEL = "agentlip.workspace"  # of containers
PREFIX = "agentlip-"
TOKEN = "AGENTLIP_TOKEN"  # the variable with a run's token
EVENT, EVENT_FILE = "AGENTLIP_EVENT", "event.json"  # variable and file with the event, as JSON
GRACE_SECONDS = 7.0
"""Time between SIGTERM and SIGKILL. A stopping appliance gives all jobs this time at once;
`docker stop` and `agentlipd down` kill the appliance itself after ten seconds."""
NOT_STARTED = 127  # exit code for a command that can't be started


def is_running(handle: str | None) -> bool:
    """Return whether the supervisor for an earlier process's attempt still runs."""
    pid, _, ticks = (handle or "").partition(":")
    return bool(ticks) and start_ticks(int(pid)) == ticks


def container_name(run_id: str, number: int) -> str:
    """Return the container name for an attempt, which is its handle."""
    return f"{PREFIX}{run_id}-{number}"


def start_ticks(pid: int) -> str:
    """Return a process's start time in ticks since boot; "" without the process, or not on
    Linux."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == b"Z" else fields[19].decode()
