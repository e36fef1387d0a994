"""The writer as a native thread of this process: little memory, but it shares the GIL."""

from collections.abc import Callable
from typing import Any

from appliance.kernel.loop_callbacks import Handoff
from appliance.kernel.threads import NativeThread, SimpleQueue
from appliance.kernel.write_request import Submission
from appliance.kernel.writer import Writer

Deliver = Callable[[list[Submission], list[Any]], None]


class WriterThread:
    """Takes what already waits as one batch; `deliver` is called on the loop."""

    def __init__(self, writer: Writer, batch_max: int, handoff: Handoff, deliver: Deliver) -> None:
        self._writer = writer
        self.ids = writer.ids
        self._batch_max = batch_max
        self._handoff = handoff
        self._deliver = deliver
        self._queue: SimpleQueue[Submission | None] = SimpleQueue()
        self._thread = NativeThread(self._loop, handoff)

    @property
    def alive(self) -> bool:
        return self._thread.alive

    def submit(self, submission: Submission) -> None:
        self._queue.put(submission)

    def close(self, timeout_seconds: float) -> bool:
        """After the last submission is done; False when time ran out."""
        self._queue.put(None)
        return self._thread.join(timeout_seconds)

    def _loop(self) -> None:
        while batch := self._next_batch():
            for submission in batch:
                if submission.maintenance is not None:
                    self._writer.maintain(submission.maintenance)
            calls = [call for submission in batch for call in submission.calls]
            published: list[Any] = []
            if calls:
                outcomes, published = self._writer.run(calls)
                position = 0
                for submission in batch:
                    end = position + len(submission.calls)
                    submission.outcomes = outcomes[position:end]
                    position = end
            self._handoff.post(self._deliver, batch, published)
        self._writer.close()

    def _next_batch(self) -> list[Submission]:
        """The first waiting submission and those already behind it; empty at the end."""
        first = self._queue.get()
        if first is None:
            return []
        batch, jobs = [first], len(first.calls)
        while jobs < self._batch_max and not self._queue.empty():
            following = self._queue.get()
            if following is None:
                self._queue.put(None)
                break
            batch.append(following)
            jobs += len(following.calls)
        return batch
