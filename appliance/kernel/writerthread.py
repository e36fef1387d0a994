"""Runs a store's writer in a native thread in this process, which shares the GIL."""

from collections.abc import Callable
from typing import Any

from appliance.kernel.loop_callbacks import LoopCallbacks
from appliance.kernel.threads import NativeThread, SimpleQueue
from appliance.kernel.write_request import WriteRequest
from appliance.kernel.writer import BATCH_MAX, Writer

Deliver = Callable[[list[WriteRequest], list[Any]], None]


class WriterThread:
    """Runs all waiting requests as one batch. `deliver` is called on the loop."""

    def __init__(self, writer: Writer, callbacks: LoopCallbacks, deliver: Deliver) -> None:
        self._writer = writer
        self.ids = writer.ids
        self._callbacks = callbacks
        self._deliver = deliver
        self._queue: SimpleQueue[WriteRequest | None] = SimpleQueue()
        self._thread = NativeThread(self._run, callbacks)

    @property
    def alive(self) -> bool:
        return self._thread.alive

    def submit(self, request: WriteRequest) -> None:
        self._queue.put(request)

    def close(self, timeout_seconds: float) -> bool:
        """Close after the last request is done; False when time ran out."""
        self._queue.put(None)
        return self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while batch := self._next_batch():
            for part, published in self._writer.run_requests(batch):
                self._callbacks.post(self._deliver, part, published)
        self._writer.close()

    def _next_batch(self) -> list[WriteRequest]:
        """Return the next request and all queued ones; empty at the end."""
        first = self._queue.get()
        if first is None:
            return []
        batch, jobs = [first], len(first.calls)
        while jobs < BATCH_MAX and not self._queue.empty():
            following = self._queue.get()
            if following is None:
                self._queue.put(None)
                break
            batch.append(following)
            jobs += len(following.calls)
        return batch
