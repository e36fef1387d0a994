"""Streams a task as server-sent events: the task, then its changes until it ends."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from appliance.feed_source import FeedSource
from appliance.hub import metrics
from appliance.hub.a2a import wire
from appliance.hub.a2a.messages import to_artifacts, to_status, to_task
from appliance.hub.a2a.queries import StoredTask, TaskKey
from appliance.hub.a2a.service import Tasks
from appliance.hub.events import encode
from appliance.kernel.auth import Principal
from appliance.web.sse_stream import SseStream

LISTED_SECONDS = 5.0  # no event says that an agent listed a message, so the task is read again


def task_stream(tasks: Tasks, key: TaskKey, rpc_id: Any, principal: Principal) -> SseStream:
    """Return the response. Raises TaskMissing before anything is sent."""
    source = TaskSource(tasks, key, tasks.find(key), rpc_id)
    hub = tasks.hub
    return SseStream(source, hub.waits.enter, partial(hub.book.watch, principal))


class TaskSource(FeedSource):
    """A task's changes. Events only say when to read the task again."""

    def __init__(self, tasks: Tasks, key: TaskKey, task: StoredTask, rpc_id: Any) -> None:
        self._tasks, self._key, self._rpc_id = tasks, key, rpc_id
        self._until = tasks.clock.monotonic() + wire.STREAM_SECONDS_MAX
        self._status = to_status(task, key)
        self._sent: set[str] = {artifact.artifact_id for artifact in to_artifacts(task, key)}
        self._first, self._ended = to_task(task, key), task.progress.ended
        super().__init__(tasks.hub.feed, tasks.subscribe(key), metrics.sessions.labels("a2a"))

    @property
    def closed(self) -> bool:
        is_late = self._tasks.clock.monotonic() > self._until
        return self._ended or is_late or super().closed

    def begin(self) -> Iterator[bytes]:
        yield self._event("task", self._first)
        if not self._ended:
            yield from self.read_stored()

    def pop(self) -> list[bytes] | None:
        self._subscription.renew()
        return list(self.read_stored()) or None

    def wait(self, seconds: float) -> bool:
        return super().wait(min(seconds, LISTED_SECONDS))

    def read_stored(self) -> Iterator[bytes]:
        """Yield new artifacts, then a changed status."""
        task, key = self._tasks.find(self._key), self._key
        for artifact in to_artifacts(task, key):
            if artifact.artifact_id not in self._sent:
                self._sent.add(artifact.artifact_id)
                yield self._change("artifactUpdate", task, artifact=artifact, lastChunk=True)
        status = to_status(task, key)
        if status != self._status:
            self._status, self._ended = status, task.progress.ended
            yield self._change("statusUpdate", task, status=status)

    def to_events(self, _items: list[Any]) -> Iterator[bytes]:
        return self.read_stored()

    def _change(self, name: str, task: StoredTask, **fields: Any) -> bytes:
        return self._event(name, {"taskId": self._key.topic, "contextId": task.context, **fields})

    def _event(self, name: str, content: Any) -> bytes:
        reply = {"jsonrpc": "2.0", "id": self._rpc_id, "result": {name: content}}
        return b"data: %b\n\n" % encode(reply)
