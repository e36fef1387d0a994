"""Runs all stores' writers in one child process, with a thread for each.

    this process                            the child (`writerchild.py`)
    StoreWriter ─▶ frames ── socketpair ──▶ thread of the store: batch ─▶ commit
                ◀─ frames ◀── socketpair ─┘
    WriterProcess ── control socket ─▶ "open this store, here is its socket"

The child has a separate GIL and CPU core, and the threads wait for the disk in parallel. A frame is
a length in four bytes and a pickle. Functions are pickled by name, so a write must be a
module-level function with plain arguments. Replies are in commit order.

Two processes must never write. The child inherits the workspace's lock, so that no other process
can lock the workspace before the child has ended, and the operating system ends the child with its
parent. If the child ends first, every waiting write fails with "unknown", a new child starts, and
each store's `restarted` is called, to publish committed but unpublished items.
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

from appliance.kernel.batch import CallOutcome
from appliance.kernel.child_environment import child_environment
from appliance.kernel.clock import Clock
from appliance.kernel.ids import IdFactory
from appliance.kernel.log import Log, LogChange
from appliance.kernel.retry import RetrySettings, delay_seconds
from appliance.kernel.store_errors import StoreBusy
from appliance.kernel.write_request import SEND_AGAIN, WriteRequest
from appliance.kernel.writerchild import (
    LENGTH,
    WriterConfig,
    frame,
    frames_in,
)

RESTARTS_SECONDS = 30.0  # a child that ran longer is restarted at once
RESTARTS_MAX = 20  # within that time; after that nothing is written until the appliance restarts
RETRY = RetrySettings(initial_seconds=0.1, max_seconds=1.0)  # the child's restarts
RECEIVE_BYTES = 1 << 16
READ, WRITE = 1, 2  # libev's
Deliver = Callable[[list[WriteRequest], list[Any]], None]


class StoreWriter:
    """A store's writer in the child. `deliver` is called in the event loop's hub."""

    def __init__(
        self,
        process: "WriterProcess",
        config: WriterConfig,
        deliver: Deliver,
        restarted: Callable[[], None],
        clock: Clock,
        log: Log,
    ) -> None:
        self.config = config
        self.restarted = restarted
        self.ids = IdFactory(clock)  # follows the child's number, which follows this one
        self.alive = False
        self.closing = False
        self._process = process
        self._deliver = deliver
        self._log = log
        self._loop = gevent.get_hub().loop
        self._waiting: dict[int, WriteRequest] = {}
        self._number = 0
        self._outgoing = bytearray()
        self._incoming = bytearray()
        self._sending = False
        self._ended = Event()

    def submit(self, request: WriteRequest) -> None:
        """Send a request. Raises pickle.PicklingError for a call that can't be pickled."""
        self._number += 1
        work = {
            "number": self._number, "last_id": self.ids.last, "calls": request.calls,
            "maintenance": request.maintenance, "alone": request.alone,
        }  # fmt: skip
        data = frame(work)
        self._waiting[self._number] = request
        self._post(data)
        if not self.alive:
            self._fail_waiting()

    def close(self, timeout_seconds: float) -> bool:
        """Close after the last request is done; False when time ran out."""
        self.closing = True
        if not self.alive:
            return True
        self._post(LENGTH.pack(0))
        return bool(self._ended.wait(timeout_seconds))

    def attach(self, descriptor: int) -> None:
        """Attach the child, which serves this store over the other end of `descriptor`."""
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)
        self._readable = self._loop.io(descriptor, READ)
        self._writable = self._loop.io(descriptor, WRITE)
        self._incoming.clear()
        self._outgoing.clear()
        self._sending = False
        self._ended.clear()
        self.alive = True
        self._readable.start(self._receive)

    def detach(self) -> None:
        """Detach the child, which has ended, or closed this store: nothing more is written here."""
        if self.alive:
            self.alive = False
            for watcher in (self._readable, self._writable):
                watcher.stop()
                watcher.close()
            os.close(self._descriptor)
            self._fail_waiting()
            self._ended.set()

    # In the hub: the loop calls these, which must not wait. A greenlet that they switch to runs at
    # once.

    def _post(self, data: bytes) -> None:
        self._outgoing += data
        if not self._sending and self.alive:
            self._sending = True
            self._send()

    def _send(self) -> None:
        try:
            sent = os.write(self._descriptor, self._outgoing)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the child has ended; `_receive` gets the stream's end
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
            self.detach()
            if not self.closing:
                self._process.kill()  # a store without its writer: start again with all stores
            return
        self._incoming += data
        for body in list(frames_in(self._incoming)):
            try:
                reply = pickle.loads(body)
            except Exception as error:
                # The reply's caller is unknown. End the child, so that all callers get an error.
                self._log.error("the writer's reply can't be read", error, pid=self._process.pid)
                self._process.kill()
                return
            try:
                self._take(reply)
            except Exception:
                # Later replies must still be delivered; gevent prints the error.
                gevent.get_hub().handle_error(self, *sys.exc_info())

    def _take(self, reply: tuple[list[tuple[int, list[tuple[Any, Any]]]], list[Any], int]) -> None:
        done, published, last_id = reply
        self.ids.follow(last_id)
        batch = []
        for number, outcomes in done:
            request = self._waiting.pop(number)
            request.outcomes = [CallOutcome(result, error) for result, error in outcomes]
            batch.append(request)
        self._deliver(batch, published)

    def _fail_waiting(self) -> None:
        batch = list(self._waiting.values())
        self._waiting.clear()
        unknown = self._process.given_up or StoreBusy(
            "the writer ended; whether this was stored is unknown",
            hint=SEND_AGAIN,
        )
        for request in batch:
            request.outcomes = [CallOutcome(error=unknown) for _ in request.calls]
        if batch:
            self._loop.run_callback(self._deliver, batch, [])


class WriterProcess:
    """The child and its stores. Used on the creating event loop."""

    def __init__(self, clock: Clock, log: Log, lock_descriptor: int | None = None) -> None:
        self._clock = clock
        self._log = log
        self._lock_descriptor = lock_descriptor
        self._loop = gevent.get_hub().loop
        self._writers: list[StoreWriter] = []
        self._stopping = False
        self._ended = Event()
        self._restarts: list[float] = []
        self.given_up: StoreBusy | None = None  # the error for all writes, after RESTARTS_MAX
        self._start()

    def open(
        self, config: WriterConfig, deliver: Deliver, restarted: Callable[[], None]
    ) -> StoreWriter:
        """Return a store's writer. `restarted` is called when a new child replaced one that
        ended, before anything is written."""
        writer = StoreWriter(self, config, deliver, restarted, self._clock, self._log)
        self._writers.append(writer)
        self._attach(writer)
        return writer

    @property
    def restarts(self) -> int:
        """Return how often the child was replaced within RESTARTS_SECONDS."""
        now = self._clock.monotonic()
        return sum(now - when < RESTARTS_SECONDS for when in self._restarts)

    def kill(self) -> None:
        """Kill the child. Unless `close` was called, a new one replaces it."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def change_log(self, change: LogChange) -> None:
        """Change the child's log; later children begin with this process's log."""
        with suppress(OSError):  # has just ended: the next one inherits the streams
            self._control.sendall(frame(change))

    def close(self, timeout_seconds: float) -> bool:
        """End the child, after all stores were closed. False if it had to be killed."""
        self._stopping = True
        if self._ended.is_set():
            return True
        self._control.shutdown(socket.SHUT_WR)
        if self._ended.wait(timeout_seconds):
            return True
        self.kill()
        self._ended.wait(1.0)
        return False

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        lock = None if self._lock_descriptor is None else os.dup(self._lock_descriptor)
        try:
            if lock is not None:
                os.set_inheritable(lock, True)
            self.pid = self._spawn(theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            if lock is not None:
                os.close(lock)
        self._control = ours
        self._ended.clear()
        self._readable = self._loop.io(ours.fileno(), READ)
        self._readable.start(self._handle_end)

    def _spawn(self, theirs: socket.socket) -> int:
        """Start the child, which inherits only its end of the control socket and the lock."""
        theirs.set_inheritable(True)
        module = "appliance.kernel.writerchild"
        arguments = [
            sys.executable, "-Pm", module, str(os.getpid()), self._log.level,
            str(self._log.slow_seconds), str(theirs.fileno()),
        ]  # fmt: skip
        return os.posix_spawn(sys.executable, arguments, child_environment())

    def _attach(self, writer: StoreWriter) -> None:
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._control, [frame(writer.config)], [theirs.fileno()])
        except OSError:  # has just ended: the new child gets this store as well
            ours.close()
        else:
            writer.attach(ours.detach())
        finally:
            theirs.close()

    def _handle_end(self) -> None:
        """Handle the child's end: requested, or not."""
        self._readable.stop()
        self._readable.close()
        self._control.close()
        for writer in self._writers:
            writer.detach()
        gevent.spawn(self._reap)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            for _ in range(200):
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    break
                gevent.sleep(0.01)
        self._ended.set()
        if not self._stopping:
            self._restart()

    def _restart(self) -> None:
        """Restart the child. Nothing writes now, so `restarted` reads a final state."""
        while not self._stopping:
            now = self._clock.monotonic()
            self._restarts = [when for when in self._restarts if now - when < RESTARTS_SECONDS]
            if len(self._restarts) >= RESTARTS_MAX:
                self.given_up = StoreBusy(
                    f"the writer ended {RESTARTS_MAX} times within {RESTARTS_SECONDS:.0f} s",
                    hint="agentlipd logs; then agentlipd restart",
                )
                self._log.error(self.given_up.message, hint=self.given_up.hint)
                return
            delay = delay_seconds(RETRY, len(self._restarts) + 1) if self._restarts else 0.0
            self._restarts.append(now)
            self._log.error("the writer ended; starting another", pid=self.pid, seconds=delay)
            gevent.sleep(delay)
            try:
                for writer in self._writers:
                    writer.restarted()
                self._start()
            except Exception as error:
                # Reading or starting a process failed. Until a success, writes get 503.
                self._log.error("the writer can't be started", error)
            else:
                for writer in self._writers:
                    if not writer.closing:
                        self._attach(writer)
                return
