"""The child that writes: reads frames of work, runs them in batches, answers in frames.

`python -m appliance.kernel.writerchild ORDER SOCKET`, started by `writerprocess.py`; it
inherits that descriptor, and the workspace's lock, which it only keeps open. It imports no
event loop and no web.
"""

import ctypes
import os
import pickle
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from appliance.kernel.batch import Outcome
from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.kernel.writer import CatchUp, StoreSettings, Writer

LENGTH = struct.Struct("!I")
RECEIVE_BYTES = 1 << 16
PR_SET_PDEATHSIG = 1


class WriterConfig(msgspec.Struct, frozen=True):
    """What the child must know of the store it writes."""

    name: str
    path: str
    settings: StoreSettings
    log_level: str
    parent: int
    catch_up: CatchUp | None = None

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


def frame(content: Any) -> bytes:
    body = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


def frames_in(buffer: bytearray) -> Iterator[bytes]:
    """Takes whole frames out of the front of `buffer`; an empty one is the end."""
    start, size = 0, len(buffer)
    while size - start >= LENGTH.size:
        (length,) = LENGTH.unpack_from(buffer, start)
        end = start + LENGTH.size + length
        if end > size:
            break
        yield bytes(memoryview(buffer)[start + LENGTH.size : end])
        start = end
    del buffer[:start]


class Child:
    """Serves one parent until the parent says so or is gone."""

    def __init__(self, order: WriterConfig, raw: socket.socket) -> None:
        clock = SystemClock()
        log = Log(level=order.log_level, clock=clock)
        self._writer = Writer(
            order.name, Path(order.path), order.settings, clock, log, catch_up=order.catch_up
        )
        self._batch_max = order.settings.batch_max
        self._raw = raw

    def serve(self) -> None:
        buffer = bytearray()
        while data := self._raw.recv(RECEIVE_BYTES):
            buffer += data
            works: list[tuple[int, Any]] = []
            jobs = 0
            for body in frames_in(buffer):
                if not body:
                    self._write(works)
                    self._writer.close()
                    return
                jobs += self._sort(pickle.loads(body), works)
                if jobs >= self._batch_max:
                    self._write(works)
                    works, jobs = [], 0
            self._write(works)

    def _sort(self, work: Any, works: list[tuple[int, Any]]) -> int:
        """Upkeep at once, calls for the batch; how many calls."""
        number, calls, maintenance, last_id = work
        self._writer.ids.follow(last_id)
        if maintenance is not None:
            self._write(works)
            works.clear()
            self._writer.maintain(maintenance)
        works.append((number, calls))
        return len(calls)

    def _write(self, works: list[tuple[int, Any]]) -> None:
        if not works:
            return
        calls = [call for _, own in works for call in own]
        outcomes, published = self._writer.run(calls) if calls else ([], [])
        done, position = [], 0
        for number, own in works:
            part = outcomes[position : position + len(own)]
            done.append((number, [_told(outcome) for outcome in part]))
            position += len(own)
        self._raw.sendall(frame((done, published, self._writer.ids.last)))


def _told(outcome: Outcome) -> tuple[Any, BaseException | None]:
    """Errors are of any class; one that can't be made again over there is told by its name."""
    error = outcome.error
    if error is None:
        return outcome.result, None
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"a {type(error).__name__} that can't be told")
    return None, error


def main() -> None:
    order = msgspec.json.decode(sys.argv[1], type=WriterConfig)
    # The parent stops us by closing; a signal to the whole group is not for us.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != order.parent:
        return  # it ended before we could ask to be told
    raw = socket.socket(fileno=int(sys.argv[2]))
    raw.setblocking(True)  # the parent made it for its event loop
    Child(order, raw).serve()


if __name__ == "__main__":
    main()
