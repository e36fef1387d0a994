"""Finds the process that listens on a TCP port, to name it in an error."""

from contextlib import suppress
from pathlib import Path

from appliance.kernel.ownership import user_name
from appliance.workspace.open_files import program_with

LISTENING = "0A"


def describe_port_owner(port: int) -> str:
    """Return `pid 71 (python3 -m http.server)`, `a process of alice`, or `another program`."""
    for table in ("tcp", "tcp6"):
        lines: list[str] = []
        with suppress(OSError):
            lines = (Path("/proc/net") / table).read_text().splitlines()[1:]
        for fields in map(str.split, lines):
            if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                owner = program_with([f"socket:[{fields[9]}]"])
                return owner or f"a process owned by {user_name(int(fields[7]))}"
    return "another program"
