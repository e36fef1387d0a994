"""Runs one turn: a process that gets its entries, and ends with the program that started it."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from appliance.child import attended
from appliance.hub.agents import usage
from appliance.hub.agents.usage import TurnUsage
from appliance.hub.agents.wire import OUTPUT_BYTES_MAX, Outcome
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Invalid

GRACE_SECONDS = 10.0  # between SIGTERM and SIGKILL
POLL_SECONDS = 0.2
PIECE_BYTES = 65_536
FILE, NUMBER, NAME = "AGENTLIP_ENTRIES", "AGENTLIP_TURN", "AGENTLIP_AGENT"


class TurnResult(NamedTuple):
    """How a turn ended. `code`: the exit code, negative for a signal. `usage`: what it reported."""

    outcome: Outcome
    code: int
    seconds: float
    output: str
    usage: TurnUsage


def check_command(words: Sequence[str]) -> None:
    if not words or shutil.which(words[0]) is None:
        program = words[0] if words else ""
        raise Invalid(
            f"{program or 'the command'} can't be started: there is no such program",
            hint="agentlip agent run NAME -- ./agent.sh",
        )


def run_turn(
    words: Sequence[str],
    work: Mapping[str, Any],
    *,
    text: str | None,
    seconds_max: float,
    stop: threading.Event,
    clock: Clock,
) -> TurnResult:
    """Run a command with `work` as JSON on standard input and in a file; `text`: on the input
    instead. Pass output on. End the command after `seconds_max`, or when `stop` is set."""
    began = clock.monotonic()
    encoded = msgspec.json.encode(work)
    with tempfile.TemporaryDirectory(prefix="agentlip-turn-") as folder:
        file = Path(folder) / "entries.json"
        file.write_bytes(encoded)
        environment = {
            **os.environ, FILE: str(file), NUMBER: str(work["turn"]), NAME: str(work["agent"]),
            usage.FILE: str(Path(folder) / "usage.json"),
        }  # fmt: skip
        watched, kept = os.pipe()  # hangs up when this process ends, also by SIGKILL
        with os.fdopen(kept, "wb") as lifeline:
            process = subprocess.Popen(
                [sys.executable, "-EPm", attended.__name__, str(watched), *words],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                pass_fds=[watched], env=environment, start_new_session=True,
            )  # fmt: skip
            os.close(watched)
            tail = bytearray()
            threads = [
                threading.Thread(target=_pass_on, args=(process.stdout, tail), daemon=True),
                threading.Thread(
                    target=_feed, args=(process.stdin, text.encode() if text else encoded),
                    daemon=True,
                ),
            ]  # fmt: skip
            for thread in threads:
                thread.start()
            outcome = _wait(process, lifeline, began + seconds_max, stop, clock)
            threads[0].join(GRACE_SECONDS)
        used = usage.read(Path(folder) / "usage.json")
    code = process.returncode
    if outcome is None:
        outcome = "done" if code == 0 else "failed"
    printed = bytes(tail[-OUTPUT_BYTES_MAX:]).decode("utf-8", "replace").replace("\0", "")
    while len(printed.encode()) > OUTPUT_BYTES_MAX:
        printed = printed[len(printed) // 8 + 1 :]
    return TurnResult(outcome, code, clock.monotonic() - began, printed, used)


def _wait(
    process: subprocess.Popen[bytes], lifeline: IO[bytes], until: float, stop: threading.Event,
    clock: Clock,
) -> Outcome | None:  # fmt: skip
    """Wait for the end; end the process when it is late or has to stop."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SECONDS)
            return None
        late = clock.monotonic() >= until
        if late or stop.is_set():
            _end(process, lifeline)
            return "late" if late else "stopped"


def _end(process: subprocess.Popen[bytes], lifeline: IO[bytes]) -> None:
    """Send SIGTERM. After a while, have the supervisor kill the command with its descendants."""
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)
    lifeline.close()
    process.wait()


def _pass_on(pipe: IO[bytes] | None, tail: bytearray) -> None:
    """Copy output to standard error, and keep its end."""
    assert pipe is not None
    with suppress(OSError, ValueError):
        while piece := os.read(pipe.fileno(), PIECE_BYTES):
            tail += piece
            del tail[:-OUTPUT_BYTES_MAX]
            sys.stderr.buffer.write(piece)
            sys.stderr.buffer.flush()


def _feed(pipe: IO[bytes] | None, data: bytes) -> None:
    """Write the input. The command need not read it."""
    assert pipe is not None
    with suppress(OSError, ValueError):
        pipe.write(data)
        pipe.close()
