"""Which files a process has open, as Linux lists them in `/proc`."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

COMMAND_CHARACTERS_MAX = 80


def open_files(process: Path) -> Iterator[tuple[Path, str]]:
    """The open files of `/proc/PID`, each with its name. None of another user's process."""
    with suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                yield descriptor, str(descriptor.readlink())


def program_with(names: Iterable[str]) -> str:
    """`pid 71 (python3 -m http.server)`: a process with one of the files open; "" without one."""
    wanted = frozenset(names)
    for process in Path("/proc").glob("[0-9]*"):
        if any(name in wanted for _, name in open_files(process)):
            return f"pid {process.name} ({_command(process)})"
    return ""


def _command(process: Path) -> str:
    try:
        text = (process / "cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.replace("\0", " ").strip()[:COMMAND_CHARACTERS_MAX]
