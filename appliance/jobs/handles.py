"""Handles by which a later process, or one without the server, finds an attempt again."""

from pathlib import Path

LABEL = "agentlip.workspace"  # of containers
PREFIX = "agentlip-"
TOKEN = "AGENTLIP_TOKEN"  # the variable with the token of a run
EVENT, EVENT_FILE = "AGENTLIP_EVENT", "event.json"  # variable and file with the event, as JSON
GRACE_SECONDS = 7.0
"""Between SIGTERM and SIGKILL. An appliance that stops gives it to all jobs at once, and is killed
itself after ten seconds, by `docker stop` and by `agentlipd down`."""
NOT_STARTED = 127  # exit code of a command that can't be started


def is_running(handle: str | None) -> bool:
    """Whether the supervisor of an attempt of an earlier process still runs."""
    pid, _, ticks = (handle or "").partition(":")
    return bool(ticks) and start_ticks(int(pid)) == ticks


def container_name(run_id: str, number: int) -> str:
    """The name of the container of an attempt, which is its handle."""
    return f"{PREFIX}{run_id}-{number}"


def start_ticks(pid: int) -> str:
    """When the process started, in ticks since the boot; "" if there is none, or not on Linux."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == b"Z" else fields[19].decode()
