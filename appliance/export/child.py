"""Our own command line as a process apart: what is heavy runs there, off the event loop.

Under the server `subprocess` is the patched one, so waiting here lets everybody else go on.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from appliance.export.settings import JobsSettings
from appliance.kernel.datadir import DataDir
from appliance.kernel.errors import Unavailable

ERRORS_BYTES_MAX = 64 * 1024


class ChildTooSlow(Unavailable):
    code = "CHILD_TOO_SLOW"
    sentence = "that took too long, and was ended"
    advice = "ask for less, or ask again when the machine is less busy"


class Done(NamedTuple):
    code: int
    out: bytes
    err: bytes


class Child:
    """Runs `agentlip …` in this workspace with the settings of [jobs] that are in force here."""

    def __init__(self, datadir: DataDir, settings: JobsSettings) -> None:
        self._datadir = datadir
        self._environment = {
            f"AGENTLIP_JOBS__{name.upper()}": msgspec.json.encode(value).decode()
            for name, value in msgspec.structs.asdict(settings).items()
        }

    def run(self, arguments: Sequence[str], seconds_max: float) -> Done:
        """Its exit code and what it printed. It ends when this is interrupted."""
        environment = {**os.environ, **self._environment}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        environment["AGENTLIP_WORKSPACE"] = str(self._datadir.workspace)
        process = subprocess.Popen(
            [sys.executable, "-m", "appliance", *arguments, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=self._datadir.workspace,
        )
        try:
            out, err = process.communicate(timeout=seconds_max)
        except subprocess.TimeoutExpired:
            raise ChildTooSlow(f"not done within {seconds_max:g} s, and ended") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        return Done(process.returncode, out, err[-ERRORS_BYTES_MAX:])


class Told(msgspec.Struct, frozen=True):
    """An error as the command line prints it with --json."""

    error: str = "it ended without a word"
    code: str = "INTERNAL_ERROR"
    hint: str = ""


def error_of(done: Done) -> Told:
    for line in reversed(done.err.splitlines()):
        try:
            return msgspec.json.decode(line, type=Told)
        except msgspec.DecodeError:
            continue
    return Told()
