"""Starts a template: a process that forks others."""

import sys
from functools import partial
from pathlib import Path

from appliance.child.line_process import LineProcess, spawn

START_SECONDS = 30.0


class ForkTemplate:
    """A process that forks others, started with the first fork. When the template ends, all forked
    processes end too, and the next fork starts another."""

    def __init__(self, module: str) -> None:
        """Take the template's program as a `module`, whose `main` calls `template.serve`."""
        path = str(Path(__file__).parents[2])
        program = f"import sys; sys.path.insert(0, {path!r}); from {module} import main; main()"
        self._start = partial(spawn, [sys.executable, "-I", "-S", "-c", program], {})
        self._process: LineProcess | None = None

    def fork(self, *descriptors: int) -> int:
        """Have a process serve the socket, which is the last descriptor; earlier descriptors become
        0, 1 and so on. Returns 0: the process sends its pid on the socket, if needed. Raises
        OSError and ResponseLate."""
        if self._process is None or not self._process.check_alive():
            self._process = LineProcess(self._start)
        self._process.send_descriptors(descriptors, START_SECONDS)
        return 0

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
