"""Runs a command with input, output and a time limit.

The command leads its own process group, so that everything it started ends with it. Waiting does
not block the event loop.
"""

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import gevent
import msgspec
from gevent import subprocess

from appliance.kernel.clock import Clock

_PIECE_BYTES = 65_536
_DRAIN_SECONDS = 1.0


class CommandResult(msgspec.Struct, frozen=True):
    """`code`: the exit code, negative for a signal; None: the command was not started.

    `output`: standard output up to its limit. `truncated`: there was more, or it was not closed.
    `errors`: the end of standard error, up to its limit.
    """

    code: int | None
    output: bytes
    truncated: bool
    timed_out: bool
    seconds: float
    errors: bytes = b""


def run(
    arguments: Sequence[str],
    text: bytes,
    environment: Mapping[str, str],
    *,
    folder: Path,
    seconds_max: float,
    kill_after_seconds: float,
    output_bytes_max: int,
    errors_bytes_max: int = 0,
    niceness: int = 0,
    clock: Clock,
) -> CommandResult:
    """Runs a command. After `seconds_max`, or when the call is interrupted, its group gets SIGTERM,
    and later SIGKILL. `niceness`: above 0 lowers its CPU priority."""
    started = clock.monotonic()
    process: Any
    try:
        process = subprocess.Popen(
            list(arguments),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE if errors_bytes_max else DEVNULL,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
            close_fds=True,
        )
    except OSError:
        return CommandResult(None, b"", False, False, clock.monotonic() - started)
    if niceness:
        with suppress(OSError):  # it has ended
            os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
    output = _Reader(process.stdout, output_bytes_max)
    errors = _Reader(process.stderr, errors_bytes_max, keeps_end=True)
    greenlets = [gevent.spawn(_feed, process, text), *map(gevent.spawn, (output.read, errors.read))]
    try:
        timed_out = not _ends(process, seconds_max)
    finally:
        if process.poll() is None:
            _kill_group(process.pid, signal.SIGTERM)
            _ends(process, kill_after_seconds)
        # Also kills what the command left behind in its group.
        _kill_group(process.pid, signal.SIGKILL)
        _ends(process, kill_after_seconds)
        gevent.joinall(greenlets[1:], _DRAIN_SECONDS)
        truncated = output.truncated or not greenlets[1].ready()
        gevent.killall(greenlets)
        for pipe in (process.stdin, process.stdout, process.stderr):
            with suppress(OSError, AttributeError):
                pipe.close()
    seconds = clock.monotonic() - started
    out, err = bytes(output.text), bytes(errors.text)
    return CommandResult(process.returncode, out, truncated, timed_out, seconds, err)


class _Reader:
    """Reads a pipe to its end and keeps the beginning, or the end, up to the limit."""

    def __init__(self, pipe: Any, bytes_max: int, *, keeps_end: bool = False) -> None:
        self._pipe = pipe
        self._bytes_max = bytes_max
        self._keeps_end = keeps_end
        self.text = bytearray()
        self.truncated = False

    def read(self) -> None:
        with suppress(OSError, ValueError):
            while self._pipe is not None and (piece := self._pipe.read1(_PIECE_BYTES)):
                self.text += piece
                over = len(self.text) - self._bytes_max
                if over > 0:
                    del self.text[slice(over) if self._keeps_end else slice(-over, None)]
                    self.truncated = True


def _feed(process: Any, text: bytes) -> None:
    """Writes the input. The command need not read it."""
    with suppress(OSError, ValueError):
        process.stdin.write(text)
        process.stdin.close()


def _ends(process: Any, seconds: float) -> bool:
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill_group(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
