"""Finds the process that listens on a TCP port, to name it in an error."""

from pathlib import Path

from appliance.kernel.ownership import user_name

LISTENING = "0A"
COMMAND_CHARACTERS_MAX = 80


def describe_port_owner(port: int) -> str:
    """`pid 71 (python3 -m http.server)`, `a process of alice`, or `another program`."""
    for table in ("tcp", "tcp6"):
        for line in _text(Path("/proc/net") / table).splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                return _process_with(fields[9]) or f"a process of {user_name(int(fields[7]))}"
    return "another program"


def _process_with(inode: str) -> str:
    for process in Path("/proc").glob("[0-9]*"):
        if any(_link(file) == f"socket:[{inode}]" for file in _files(process / "fd")):
            words = _text(process / "cmdline").replace("\0", " ").strip()
            return f"pid {process.name} ({words[:COMMAND_CHARACTERS_MAX]})"
    return ""


def _files(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # it has ended, or belongs to another user
        return []


def _link(file: Path) -> str:
    try:
        return str(file.readlink())
    except OSError:  # closed meanwhile
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
