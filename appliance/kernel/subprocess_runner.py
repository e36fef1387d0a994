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
    """

    code: int | None
    output: bytes
    truncated: bool
    timed_out: bool
    seconds: float


def run(
    arguments: Sequence[str],
    text: bytes,
    environment: Mapping[str, str],
    *,
    folder: Path,
    seconds_max: float,
    kill_after_seconds: float,
    output_bytes_max: int,
    clock: Clock,
) -> CommandResult:
    """Runs a command. After `seconds_max` its group gets SIGTERM, and later SIGKILL."""
    started = clock.monotonic()
    process: Any
    try:
        process = subprocess.Popen(
            list(arguments),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
            close_fds=True,
        )
    except OSError:
        return CommandResult(None, b"", False, False, clock.monotonic() - started)
    output = _OutputReader(process, output_bytes_max)
    feeding = gevent.spawn(_feed, process, text)
    reading = gevent.spawn(output.read)
    try:
        timed_out = not _ends(process, seconds_max)
        if timed_out:
            _kill_group(process.pid, signal.SIGTERM)
            _ends(process, kill_after_seconds)
    finally:
        # Also kills what the command left behind in its group.
        _kill_group(process.pid, signal.SIGKILL)
        _ends(process, kill_after_seconds)
        reading.join(_DRAIN_SECONDS)
        truncated = output.truncated or not reading.ready()
        gevent.killall([feeding, reading])
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                pipe.close()
    return CommandResult(
        process.returncode, output.text, truncated, timed_out, clock.monotonic() - started
    )


class _OutputReader:
    """Reads standard output to its end and keeps it up to the limit."""

    def __init__(self, process: Any, bytes_max: int) -> None:
        self._process = process
        self._bytes_max = bytes_max
        self.text = b""
        self.truncated = False

    def read(self) -> None:
        with suppress(OSError, ValueError):
            while piece := self._process.stdout.read1(_PIECE_BYTES):
                bytes_left = self._bytes_max - len(self.text)
                self.truncated = self.truncated or len(piece) > bytes_left
                self.text += piece[:bytes_left]


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
