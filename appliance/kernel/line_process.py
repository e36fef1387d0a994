"""A child process that is asked a line and answers a line, and is hung up on when it is late.

It has to end when its socket is closed. It leads a session of its own and gets a socket as
standard input, no other descriptor, and the environment it is given. Who waits for it waits on
the event loop.
"""

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import gevent
from gevent import socket as cooperative

RECEIVE_BYTES = 64 * 1024
BURIAL_LOOKS = 500
BURIAL_PAUSE_SECONDS = 0.01


class ChildLate(Exception):
    """No whole line came in time. The child is killed."""


class ChildEnded(Exception):
    """The child has ended, or closed its end."""


class ChildTalks(Exception):
    """A line longer than allowed. The child is killed."""


class ChildUnasked(ChildTalks):
    """More than one line for one asked, the last time. The child is killed."""


class LineChild:
    """One process. `ask` is for one caller at a time; after an error it is over."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        ours, theirs = cooperative.socketpair()  # type: ignore[attr-defined]
        try:
            self.pid = _spawn(arguments, environment, theirs.fileno())
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._socket: Any = ours
        self._buffer = bytearray()
        self.alive = True

    def ask(self, line: bytes, seconds: float, bytes_max: int) -> bytes:
        """Its answer to `line`, without the line end."""
        try:
            if self._buffer:
                raise ChildUnasked
            with gevent.Timeout(seconds, ChildLate):
                self._socket.sendall(line + b"\n")
                return self._line(bytes_max)
        except OSError as error:
            self.kill()
            raise ChildEnded from error
        except BaseException:  # also when the waiting greenlet is killed: the answer would be old
            self.kill()
            raise

    def look(self) -> bool:
        """Whether it still runs, though nobody has asked it for a while."""
        if self.alive and hasattr(os, "waitid"):
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            try:
                ended = os.waitid(os.P_PID, self.pid, flags) is not None
            except ChildProcessError:
                ended = True
            if ended:
                self.kill()
        return self.alive

    def kill(self) -> None:
        """Hangs up: the child ends all that it started, and itself. One that does not is killed
        with its process group after a while. Waits for nothing."""
        if not self.alive:
            return
        self.alive = False
        self._socket.close()
        gevent.spawn(self._bury)

    def _line(self, bytes_max: int) -> bytes:
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > bytes_max:
                raise ChildTalks
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                raise ChildEnded
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        if len(line) > bytes_max:
            raise ChildTalks
        return line

    def _bury(self) -> None:
        with suppress(ChildProcessError):
            for look in range(2 * BURIAL_LOOKS):
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    return
                if look == BURIAL_LOOKS:  # not reaped yet, so the number is still its own
                    with suppress(ProcessLookupError, PermissionError):
                        os.killpg(self.pid, signal.SIGKILL)
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(self.pid, signal.SIGKILL)
                gevent.sleep(BURIAL_PAUSE_SECONDS)


def _spawn(arguments: Sequence[str], environment: Mapping[str, str], descriptor: int) -> int:
    actions = [
        (os.POSIX_SPAWN_DUP2, descriptor, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    words = list(arguments)
    try:
        return os.posix_spawn(words[0], words, dict(environment), file_actions=actions, setsid=True)
    except NotImplementedError:  # a system that can't: the child asks for its session itself
        return os.posix_spawn(words[0], words, dict(environment), file_actions=actions)
