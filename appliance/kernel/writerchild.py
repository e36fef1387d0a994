"""The writer process: a thread for each store reads frames of work, runs them in batches and
replies in frames.

`python -m appliance.kernel.writerchild PARENT LOG_LEVEL SLOW_SECONDS SOCKET`, started by
`writerprocess.py`. The process inherits that descriptor, over which the stores arrive, and keeps
the workspace's lock open. Neither gevent nor the web modules are imported.
"""

import os
import pickle
import signal
import socket
import struct
import sys
import threading
import traceback
import typing
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # msgspec would import typing_extensions, which imports inspect and ast: over 1 MB.
    sys.modules["typing_extensions"] = typing

import msgspec

from appliance import syscalls
from appliance.kernel.batch import CallOutcome
from appliance.kernel.clock import Clock, SystemClock
from appliance.kernel.log import Log, LogChange
from appliance.kernel.writer import BATCH_MAX, CatchUp, StoreSettings, Writer, WriterRequest

LENGTH = struct.Struct("!I")
RECEIVE_BYTES = 1 << 16
STORES_MAX = 16  # sockets received at once


class WriterConfig(msgspec.Struct, frozen=True):
    """A store's configuration for this process."""

    name: str
    path: str
    settings: StoreSettings
    catch_up: CatchUp | None = None


class ReceivedRequest(WriterRequest, kw_only=True, eq=False):
    """A request from the parent, with its number there and the newest id that the parent knew."""

    number: int
    last_id: int


def frame(content: Any) -> bytes:
    body = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


def frames_in(buffer: bytearray) -> Iterator[bytes]:
    """Remove whole frames from the front of `buffer` and yield them. An empty frame means the
    end."""
    start, size = 0, len(buffer)
    while size - start >= LENGTH.size:
        (length,) = LENGTH.unpack_from(buffer, start)
        end = start + LENGTH.size + length
        if end > size:
            break
        yield bytes(memoryview(buffer)[start + LENGTH.size : end])
        start = end
    del buffer[:start]


class StoreThread:
    """Writes one store, until the parent closes it or is gone."""

    def __init__(self, config: WriterConfig, raw: socket.socket, clock: Clock, log: Log) -> None:
        self._writer = Writer(
            config.name, Path(config.path), config.settings, clock, log, catch_up=config.catch_up
        )
        self._raw = raw

    def run(self) -> None:
        """Serve, and end the process if that fails: the parent starts it again with all stores."""
        try:
            with self._raw:
                self.serve()
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def serve(self) -> None:
        buffer = bytearray()
        while data := self._raw.recv(RECEIVE_BYTES):
            buffer += data
            batch: list[ReceivedRequest] = []
            jobs = 0
            for body in frames_in(buffer):
                if not body:
                    self._write(batch)
                    self._writer.close()
                    return
                request = ReceivedRequest(**pickle.loads(body))
                self._writer.ids.follow(request.last_id)
                batch.append(request)
                jobs += len(request.calls)
                if jobs >= BATCH_MAX:
                    self._write(batch)
                    batch, jobs = [], 0
            self._write(batch)

    def _write(self, batch: list[ReceivedRequest]) -> None:
        for part, published in self._writer.run_requests(batch):
            done = [
                (request.number, [_portable(outcome) for outcome in request.outcomes])
                for request in part
            ]
            self._raw.sendall(frame((done, published, self._writer.ids.last)))


def _portable(outcome: CallOutcome) -> tuple[Any, BaseException | None]:
    """Return an outcome that can be pickled. An error that can't be pickled is replaced by its
    name."""
    error = outcome.error
    if error is None:
        return outcome.result, None
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}, which can't be pickled")
    return None, error


def serve(control: socket.socket, clock: Clock, log: Log) -> None:
    """Start a thread for each store that the parent sends, and change the log on request, until the
    parent closes `control`."""
    buffer = bytearray()
    descriptors: list[int] = []
    while True:
        data, received, _, _ = socket.recv_fds(control, RECEIVE_BYTES, STORES_MAX)
        if not data:
            return
        buffer += data
        descriptors += received
        for body in frames_in(buffer):
            content = pickle.loads(body)
            if isinstance(content, LogChange):
                with suppress(OSError):  # then continue with the former file
                    content.apply(log)
                continue
            raw = socket.socket(fileno=descriptors.pop(0))
            raw.setblocking(True)  # created by the parent for its event loop
            store = StoreThread(content, raw, clock, log)
            threading.Thread(target=store.run).start()


def main() -> None:
    parent, descriptor = int(sys.argv[1]), int(sys.argv[4])
    # The parent stops this process by closing the socket. Signals to the group are ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    syscalls.die_with_parent()
    syscalls.use_one_arena()
    syscalls.omit_sqlite_locks()
    if os.getppid() != parent:
        return  # ended before we could request a signal
    control = socket.socket(fileno=descriptor)
    control.setblocking(True)
    clock = SystemClock()
    try:
        log = Log(level=sys.argv[2], slow_seconds=float(sys.argv[3]), clock=clock)
        serve(control, clock, log)
    except (MemoryError, RuntimeError, OSError):  # not enough memory, threads, files
        # The started threads would keep this process alive, without the remaining stores.
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    main()
