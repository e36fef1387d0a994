"""The writer as a process of its own: it has a GIL to itself, and one more core.

    this process                        the child (`writerchild.py`)
    submit ─▶ frames ── socketpair ──▶ batch ─▶ commit
    deliver ◀─ frames ◀── socketpair ─┘

A frame is four bytes of length and a pickle. Functions travel by name, so what is written
must be a function of a module with plain arguments. The socket's order is the order of
commits.

Two processes may never write: the child inherits the workspace's lock, so that nobody else
gets it before the child has ended too, and the kernel ends the child when its parent does.
If the child ends first, whoever waits hears that the outcome is unknown, a new child is
started, and `restarted` is called: what was committed and never told must be looked up.
"""

import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gevent
from gevent.event import Event

from appliance.kernel.batch import Outcome
from appliance.kernel.clock import Clock
from appliance.kernel.ids import IdFactory
from appliance.kernel.log import Log
from appliance.kernel.store_errors import StoreBusy
from appliance.kernel.write_request import Submission
from appliance.kernel.writerchild import LENGTH, WriterConfig, frame, frames_in

RESTARTS_SECONDS = 30.0  # a writer that lived longer is started again at once
PAUSE_SECONDS_MAX = 1.0  # between two starts of one that keeps dying, as on a full disk
RECEIVE_BYTES = 1 << 16
READ, WRITE = 1, 2  # libev's
Deliver = Callable[[list[Submission], list[Any]], None]


class WriterProcess:
    """Made on the loop that waits for it. `deliver` is called in that loop's hub."""

    def __init__(
        self,
        order: WriterConfig,
        deliver: Deliver,
        restarted: Callable[[], None],
        clock: Clock,
        log: Log,
        lock_descriptor: int | None,
    ) -> None:
        self._order = order
        self._deliver = deliver
        self._restarted = restarted
        self._clock = clock
        self._log = log
        self._lock_descriptor = lock_descriptor
        self._loop = gevent.get_hub().loop
        self._waiting: dict[int, Submission] = {}
        self._number = 0
        self.ids = IdFactory(clock)  # follows the child's, as the child's follows this one
        self._outgoing = bytearray()
        self._incoming = bytearray()
        self._sending = False
        self._ended = Event()
        self._stopping = False
        self._restarts: list[float] = []
        self.alive = False
        self._start()

    def submit(self, submission: Submission) -> None:
        """Raises pickle.PicklingError for what can't travel."""
        self._number += 1
        work = (self._number, submission.calls, submission.maintenance, self.ids.last)
        data = frame(work)
        self._waiting[self._number] = submission
        self._post(data)
        if not self.alive:
            self._fail_waiting()

    def close(self, timeout_seconds: float) -> bool:
        """After the last submission is done; False when time ran out and it was killed."""
        self._stopping = True
        if not self.alive:
            return True
        self._post(LENGTH.pack(0))
        if self._ended.wait(timeout_seconds):
            return True
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._ended.wait(1.0)
        return False

    def _post(self, data: bytes) -> None:
        self._outgoing += data
        if not self._sending and self.alive:
            self._sending = True
            self._send()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        lock = None if self._lock_descriptor is None else os.dup(self._lock_descriptor)
        try:
            if lock is not None:
                os.set_inheritable(lock, True)
            self.pid = self._spawn(theirs)
        finally:
            theirs.close()
            if lock is not None:
                os.close(lock)
        self._descriptor = ours.detach()
        os.set_blocking(self._descriptor, False)
        self._readable = self._loop.io(self._descriptor, READ)
        self._writable = self._loop.io(self._descriptor, WRITE)
        self._incoming.clear()
        self._outgoing.clear()
        self._sending = False
        self.alive = True
        self._readable.start(self._receive)

    def _spawn(self, theirs: socket.socket) -> int:
        """Inherits its end of the socket and the lock, and nothing else."""
        theirs.set_inheritable(True)
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        module = "appliance.kernel.writerchild"
        arguments = [sys.executable, "-m", module, self._order.encode(), str(theirs.fileno())]
        return os.posix_spawn(sys.executable, arguments, environment)

    # In the hub: these are called by the loop, must not wait, and a greenlet that they
    # switch to runs at once.

    def _send(self) -> None:
        try:
            sent = os.write(self._descriptor, self._outgoing)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the child has ended; `_receive` hears of it
        del self._outgoing[:sent]
        if self._outgoing:
            self._writable.start(self._send)
        else:
            self._writable.stop()
            self._sending = False

    def _receive(self) -> None:
        try:
            data = os.read(self._descriptor, RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        self._incoming += data
        for body in list(frames_in(self._incoming)):
            try:
                reply = pickle.loads(body)
            except Exception as error:
                # Nobody knows whose reply it is: end the child, and all who wait hear of it.
                self._log.error("the writer's reply can't be read", error, pid=self.pid)
                os.kill(self.pid, signal.SIGKILL)
                return
            try:
                self._take(reply)
            except Exception:
                # The others must hear all the same; gevent prints what went wrong.
                gevent.get_hub().handle_error(self, *sys.exc_info())

    def _take(self, reply: tuple[list[tuple[int, list[tuple[Any, Any]]]], list[Any], int]) -> None:
        done, published, last_id = reply
        self.ids.follow(last_id)
        batch = []
        for number, outcomes in done:
            submission = self._waiting.pop(number)
            submission.outcomes = [Outcome(result, error) for result, error in outcomes]
            batch.append(submission)
        self._deliver(batch, published)

    def _lost(self) -> None:
        """The child has ended: as it was told to, or against all expectations."""
        self.alive = False
        for watcher in (self._readable, self._writable):
            watcher.stop()
            watcher.close()
        os.close(self._descriptor)
        self._fail_waiting()
        gevent.spawn(self._bury)

    def _bury(self) -> None:
        with suppress(ChildProcessError):
            for _ in range(200):
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    break
                gevent.sleep(0.01)
        self._ended.set()
        if not self._stopping:
            self._start_again()

    def _start_again(self) -> None:
        """Nobody writes now, so what `restarted` finds in the file is all there is."""
        now = self._clock.monotonic()
        self._restarts = [when for when in self._restarts if now - when < RESTARTS_SECONDS]
        pause = min(PAUSE_SECONDS_MAX, 0.1 * 2 ** len(self._restarts)) if self._restarts else 0.0
        self._restarts.append(now)
        self._log.error("the writer ended; starting another", pid=self.pid, seconds=pause)
        gevent.sleep(pause)
        while not self._stopping:
            try:
                self._restarted()
                self._ended.clear()
                self._start()
            except Exception as error:
                # No reading, or no new process, just now: until there is, writes hear 503.
                self._ended.set()
                self._log.error("the writer can't be started", error)
                gevent.sleep(PAUSE_SECONDS_MAX)
            else:
                return

    def _fail_waiting(self) -> None:
        batch = list(self._waiting.values())
        self._waiting.clear()
        unknown = StoreBusy(
            "the writer ended; whether this was stored is unknown",
            hint="send it again with the same Idempotency-Key",
        )
        for submission in batch:
            submission.outcomes = [Outcome(error=unknown) for _ in submission.calls]
        if batch:
            self._loop.run_callback(self._deliver, batch, [])
