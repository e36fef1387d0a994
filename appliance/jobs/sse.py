"""Streams a run's events: state changes and output."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import msgspec

from appliance.jobs import output, wire
from appliance.jobs.service import Jobs
from appliance.kernel.auth import Principal, TokenBook
from appliance.web.sse_stream import RETRY_LINE, SseStream

_encode = msgspec.json.Encoder().encode


def event_stream(
    jobs: Jobs, book: TokenBook, run_id: str, _last_id: str | None, who: Principal
) -> SseStream:
    """Return a stream that ends when the run is over. Raises NoSuchRun."""
    jobs.show(run_id)
    return SseStream(RunEventSource(jobs, run_id), partial(book.watch, who))


class RunEventSource:
    def __init__(self, jobs: Jobs, run_id: str) -> None:
        self._jobs = jobs
        self._run_id = run_id
        self._state: tuple[str, int] | None = None
        self._attempt, self._after = 1, 0
        self._over = False
        self._quiet_seconds = 0.0
        self._ending = ExitStack()
        self._wakeup = self._ending.enter_context(jobs.signals.waiting())

    @property
    def closed(self) -> bool:
        return self._over or self._jobs.signals.closed

    def begin(self) -> Iterator[bytes]:
        yield RETRY_LINE

    def pop(self) -> Iterator[bytes] | None:
        self._wakeup.clear()
        run = self._jobs.show(self._run_id).run
        query = wire.RunOutputQuery(attempt=self._attempt, after=self._after)
        part = self._jobs.read_output(self._run_id, query)
        self._after = part.next
        events = [_event("output", part)] if part.text else []
        if part.over and run.attempts_made > self._attempt:
            self._attempt, self._after = self._attempt + 1, 0
            events.append(b"")
        if not events:
            self._over = run.ended_at is not None
        if (run.state, run.attempts_made) != self._state and (self._over or run.ended_at is None):
            self._state = run.state, run.attempts_made
            events.append(_event("state", run))
        return iter(events) if events else None

    def wait(self, seconds: float) -> bool:
        """Wait for an event; False after `seconds` without one. The output is read now and then."""
        self._quiet_seconds += output.POLL_SECONDS
        if self._wakeup.wait(output.POLL_SECONDS) or self._quiet_seconds < seconds:
            return True
        self._quiet_seconds = 0.0
        return False

    def wake(self) -> None:
        self._wakeup.set()

    def end(self) -> None:
        self._ending.close()


def _event(name: str, data: wire.ShownRun | wire.RunOutput) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode(data))
