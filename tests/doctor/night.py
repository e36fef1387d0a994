"""Plays `docs/how-to/when-it-breaks.md`: its commands, run by a stranger in a shell.

Every section is one situation. Its test breaks a real workspace, runs the blocks `sh` of that
section in their order, as printed, and compares what they print with the blocks `output` behind
them. Between two blocks, the test does what the section asks of people.
"""

import os
import re
import signal
import subprocess
from copy import copy
from pathlib import Path

from appliance.workspace.datadir import DataDir, read_lock
from tests.contract.test_docs import commands_in, examples_of
from tests.doctor.patience import PATIENCE
from tests.support.commands import ROOT, environment
from tests.support.servedhub import Client
from tests.support.until import until

PAGE = ROOT / "docs/how-to/when-it-breaks.md"
SECONDS_MAX = 120


def sections() -> dict[str, str]:
    """The text of each section, by its heading."""
    first, *parts = re.split(r"(?m)^## ", PAGE.read_text(encoding="utf-8"))
    return {"": first} | {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def blocks_of(heading: str) -> list[tuple[str, str | None]]:
    """The commands of each block `sh` of a section, and the output that is shown behind it."""
    return examples_of(sections()[heading], "sh")


def fits(shown: str, printed: str) -> bool:
    """`…` stands for anything in a line, and alone in a line for any lines."""
    lines = [
        "(?:.*\n)*" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + "\n"
        for line in shown.strip().split("\n")
    ]
    return re.fullmatch("".join(lines), printed.strip() + "\n") is not None


class Stranger:
    """Runs the blocks of one section in the folder that contains `.agentlip`."""

    def __init__(self, heading: str, workspace: Path, commands: Path, **settings: str) -> None:
        self.workspace = workspace
        self.data = DataDir(workspace)
        self.waiting = blocks_of(heading)
        self.shell = ["bash", "-u", "-c"]
        self._environment = environment(PATH=commands_in(commands), **(PATIENCE | settings))

    def in_folder(self, workspace: Path) -> "Stranger":
        """The same, who runs the remaining blocks in another workspace."""
        other = copy(self)
        other.workspace, other.data = workspace, DataDir(workspace)
        return other

    def run(self, code: int = 0) -> str:
        """Runs the next block and returns what it printed. `code`: the exit code of its last
        command."""
        script, shown = self.waiting.pop(0)
        printed = self.sh(script, code)
        assert shown is None or fits(shown, printed), (
            f"{script}\nprinted:\n{printed}\nnot:\n{shown}"
        )
        return printed

    def sh(self, script: str, code: int = 0) -> str:
        done = subprocess.run(
            [*self.shell, script],
            cwd=self.workspace,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == code, f"{script}\nexit code {done.returncode}\n{done.stdout}"
        return done.stdout

    # -- the appliance -----------------------------------------------------------------------

    def up(self) -> None:
        self.sh("agentlipd up")

    @property
    def pid(self) -> int:
        written = read_lock(self.data).written
        assert written is not None
        return written.pid

    def client(self, token: str | None = None) -> Client:
        """A client with this token; None: the token of the workspace."""
        return Client(int((self.data.dir / "port").read_text()), token or self.data.read_token())

    def hang(self) -> None:
        """Stops all threads of the appliance, as if it hung."""
        stop_all_threads(self.pid)

    def end(self) -> None:
        """Kills the appliance of this workspace, if one runs."""
        lock = read_lock(self.data)
        if lock.held and lock.written is not None:
            os.kill(lock.written.pid, signal.SIGKILL)
            until(lambda: not read_lock(self.data).held, what="the appliance has ended")


def stop_all_threads(pid: int) -> None:
    """Returns when they have stopped. SIGCONT lets them run again."""
    os.kill(pid, signal.SIGSTOP)
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    until(lambda: all(") T " in (task / "stat").read_text() for task in tasks))
