"""Talks to a child process that answers each line with a line, and is killed when late.

The child has to exit when its socket is closed. Waiting does not block the event loop.
"""

import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import gevent
from gevent import socket as cooperative

RECEIVE_BYTES = 64 * 1024
REAP_POLLS = 500
REAP_POLL_SECONDS = 0.01


class ResponseLate(Exception):
    """No complete line arrived in time. The child is killed."""


class ProcessEnded(Exception):
    """The child exited, or closed its socket."""


class ResponseTooLong(Exception):
    """The child sent a line that is too long, and is killed."""


class UnrequestedLine(ResponseTooLong):
    """The child sent more than one line for one request, and is killed."""


class LineProcess:
    """One process. `ask` is for one caller at a time. After an error the process is gone."""

    def __init__(self, start: Callable[[int], int]) -> None:
        """Take `start`, which gets the child's socket descriptor, and returns the child's pid."""
        ours, theirs = cooperative.socketpair()  # type: ignore[attr-defined]
        try:
            self.pid = start(theirs.fileno())
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._socket: Any = ours
        self._buffer = bytearray()
        self.alive = True

    def ask(self, line: bytes, seconds: float, bytes_max: int) -> bytes:
        """Return the child's answer to `line`, without the newline."""
        try:
            if self._buffer:
                raise UnrequestedLine
            with gevent.Timeout(seconds, ResponseLate):
                self._socket.sendall(line + b"\n")
                return self._line(bytes_max)
        except OSError as error:
            self.kill()
            raise ProcessEnded from error
        except BaseException:  # also if the greenlet is killed: the answer would be late
            self.kill()
            raise

    def send_descriptors(self, descriptors: Sequence[int], seconds: float) -> None:
        """Send descriptors with a byte. The child gets copies."""
        with gevent.Timeout(seconds, ResponseLate):
            socket.send_fds(self._socket, [b"\n"], descriptors)

    def check_alive(self) -> bool:
        """Return whether the process still runs. Also notices that an idle one exited."""
        if self.alive and self.has_ended():
            self.alive = False
            self._socket.close()
        return self.alive

    def has_ended(self) -> bool:
        """Return whether the process has ended; then reap it."""
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True

    def kill(self) -> None:
        """Close the socket, upon which the child has to exit, or is killed with its process group
        after some seconds. Returns at once."""
        if not self.alive:
            return
        self.alive = False
        self._socket.close()
        gevent.spawn(self._reap)

    def _line(self, bytes_max: int) -> bytes:
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > bytes_max:
                raise ResponseTooLong
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                raise ProcessEnded
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        if len(line) > bytes_max:
            raise ResponseTooLong
        return line

    def _reap(self) -> None:
        for poll in range(2 * REAP_POLLS):
            if self.has_ended():
                return
            if poll == REAP_POLLS:  # not reaped yet, so the pid can't be reused
                for kill in (os.killpg, os.kill):
                    with suppress(ProcessLookupError, PermissionError):
                        kill(self.pid, signal.SIGKILL)
            gevent.sleep(REAP_POLL_SECONDS)


def spawn(arguments: Sequence[str], environment: Mapping[str, str], descriptor: int) -> int:
    """Start a program with the descriptor as standard input, no other descriptors, and only the
    given environment; return its pid. The program starts its session itself: not all systems can
    here."""
    actions = [
        (os.POSIX_SPAWN_DUP2, descriptor, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    words = list(arguments)
    return os.posix_spawn(words[0], words, dict(environment), file_actions=actions)
