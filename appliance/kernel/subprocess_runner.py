"""Runs a command for a while: bytes in, bytes out, and an end that comes.

The command leads a process group of its own, so that its end is that of all it has started.
Waiting is the loop's own: nobody else is held up, and no child is waited for by blocking.
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


class Ran(msgspec.Struct, frozen=True):
    """What became of it. `code`: as a shell says it, negative for a signal; None: not started.

    `said` is standard output up to its limit; `cut`: there was more, or something still holds it.
    """

    code: int | None
    said: bytes
    cut: bool
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
    said_bytes_max: int,
    clock: Clock,
) -> Ran:
    """Until the command ends, or its time does: then TERM to its group, and KILL later."""
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
        return Ran(None, b"", False, False, clock.monotonic() - started)
    said = _Said(process, said_bytes_max)
    feeding = gevent.spawn(_feed, process, text)
    reading = gevent.spawn(said.read)
    try:
        timed_out = not _ends(process, seconds_max)
        if timed_out:
            _signal_group(process.pid, signal.SIGTERM)
            _ends(process, kill_after_seconds)
    finally:
        # Also what the command left behind in its group; the leader may be gone by now.
        _signal_group(process.pid, signal.SIGKILL)
        _ends(process, kill_after_seconds)
        reading.join(_DRAIN_SECONDS)
        cut = said.cut or not reading.ready()
        gevent.killall([feeding, reading])
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                pipe.close()
    return Ran(process.returncode, said.text, cut, timed_out, clock.monotonic() - started)


class _Said:
    """Reads to the end; keeps no more than the limit."""

    def __init__(self, process: Any, bytes_max: int) -> None:
        self._process = process
        self._bytes_max = bytes_max
        self.text = b""
        self.cut = False

    def read(self) -> None:
        with suppress(OSError, ValueError):
            while piece := self._process.stdout.read1(_PIECE_BYTES):
                room = self._bytes_max - len(self.text)
                self.cut = self.cut or len(piece) > room
                self.text += piece[:room]


def _feed(process: Any, text: bytes) -> None:
    """The command need not read it."""
    with suppress(OSError, ValueError):
        process.stdin.write(text)
        process.stdin.close()


def _ends(process: Any, seconds: float) -> bool:
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _signal_group(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
