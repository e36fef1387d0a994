"""Runs commands with input, output and a time limit, each below a supervisor.

The supervisor ends all of a command's descendants with the command, also when the appliance is
killed. Waiting does not block the event loop.
"""

import json
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import gevent
import msgspec
from gevent import socket as cooperative
from gevent.fileobject import FileObject

from appliance.child.fork_template import ForkTemplate
from appliance.child.line_process import ResponseLate
from appliance.kernel.clock import Clock

_PIECE_BYTES = 65_536
_END_SECONDS = 5.0  # for the supervisor, to kill what is left


class CommandResult(msgspec.Struct, frozen=True):
    """How a command ended.

    `code`: the exit code, negative for a signal; None: the command was not started. `output`:
    standard output up to its limit. `truncated`: there was more, or the pipe was not closed.
    `errors`: the end of standard error, up to its limit.
    """

    code: int | None
    output: bytes
    truncated: bool
    timed_out: bool
    seconds: float
    errors: bytes = b""


class Commands:
    """A runner for commands. The template process stays from the first command on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._template = ForkTemplate(f"{__package__}.template")

    def run(
        self,
        arguments: Sequence[str],
        text: bytes,
        environment: Mapping[str, str],
        *,
        folder: Path,
        seconds_max: float,
        kill_after_seconds: float,
        output_bytes_max: int,
        errors_bytes_max: int = _PIECE_BYTES,
        niceness: int = 0,
    ) -> CommandResult:
        """Run a command. After `seconds_max`, or when the call is interrupted, the process group
        gets SIGTERM, and later all descendants SIGKILL. Nothing is left afterwards.

        niceness  above 0 lowers its CPU priority
        """
        started, answer = self._clock.monotonic(), None
        order = json.dumps([list(arguments), dict(environment), str(folder), niceness])
        kept, last = bytearray(), bytearray()
        try:
            with ExitStack() as ours:
                control, feed, output, errors = self._start(order, ours)
                readers = [
                    gevent.spawn(_read, output, kept, slice(output_bytes_max + 1, None)),
                    gevent.spawn(_read, errors, last, slice(-errors_bytes_max)),
                ]
                feeder = gevent.spawn(_feed, feed, text)
                try:
                    answer = _receive(control, seconds_max)
                finally:
                    if timed_out := answer is None:
                        with suppress(OSError):  # has just ended
                            control.shutdown(socket.SHUT_WR)
                        answer = _receive(control, kill_after_seconds)
                    control.close()
                    # The supervisor closes the pipes after ending the descendants.
                    gevent.joinall(readers, _END_SECONDS)
                    truncated = len(kept) > output_bytes_max or not readers[0].ready()
                    gevent.killall([feeder, *readers])
        except (OSError, ResponseLate):
            return CommandResult(None, b"", False, False, self._clock.monotonic() - started)
        code = json.loads(answer.splitlines()[0]) if answer else -signal.SIGKILL.value
        seconds, out = self._clock.monotonic() - started, bytes(kept[:output_bytes_max])
        return CommandResult(code, out, truncated, timed_out, seconds, bytes(last))

    def _start(self, order: str, ours: ExitStack) -> tuple[Any, ...]:
        """Start a command. Return our socket, input, output and error descriptors."""
        with ExitStack() as theirs:
            pair = cooperative.socketpair()  # type: ignore[attr-defined]
            control, end = map(ExitStack.enter_context, (ours, theirs), pair)
            feed, stdin = _pipe("wb", ours, theirs)
            output, stdout = _pipe("rb", ours, theirs)
            errors, stderr = _pipe("rb", ours, theirs)
            self._template.fork(stdin, stdout, stderr, end.fileno())
        control.sendall(order.encode() + b"\n")
        return control, feed, output, errors


def _pipe(mode: str, ours: ExitStack, theirs: ExitStack) -> tuple[Any, int]:
    """Make a pipe: the file at our end, which has that mode, and the descriptor at the other."""
    ends = os.pipe()
    descriptor, other = ends if mode == "rb" else reversed(ends)
    theirs.callback(os.close, other)
    return ours.enter_context(FileObject(descriptor, mode, 0)), other


def _receive(control: Any, seconds: float) -> bytes | None:
    """Return the answer; empty if the supervisor was killed; None after the time."""
    with gevent.Timeout(seconds, False):
        return bytes(control.recv(_PIECE_BYTES))
    return None  # type: ignore[unreachable]


def _read(pipe: Any, text: bytearray, surplus: slice) -> None:
    """Read to the end, and keep all but that part."""
    with suppress(OSError, ValueError):
        while piece := pipe.read(_PIECE_BYTES):
            text += piece
            del text[surplus]


def _feed(pipe: Any, text: bytes) -> None:
    """Write the input. The command need not read it."""
    with suppress(OSError, ValueError):
        while text:
            text = text[pipe.write(text) :]
        pipe.close()
