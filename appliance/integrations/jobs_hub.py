"""Events of the hub that start jobs, and outcomes of jobs that are posted to its topics."""

from collections.abc import Callable, Sequence

from appliance.hub import wire
from appliance.hub.access import POST
from appliance.hub.service import Hub
from appliance.jobs.loops import JobEvent
from appliance.kernel.auth import Principal
from appliance.kernel.reader import Reader

SENDER = "jobs"
PRINCIPAL = Principal("appliance:jobs", "appliance:jobs", frozenset({POST}))
_AFTER = """SELECT e.event_id, e.name, c.name FROM events AS e
    LEFT JOIN channels AS c ON c.id = e.scope_channel_id
    WHERE e.event_id > ? ORDER BY e.event_id LIMIT ?"""


class HubJobEvents:
    source = key = "hub"

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def newest(self) -> int:
        return self._hub.feed.head

    def after(self, number: int, limit: int) -> Sequence[JobEvent]:
        events: list[JobEvent] = self._hub.store.read(_read, number, limit)
        return events

    def listen(self, wake: Callable[[], None]) -> None:
        self._hub.feed.on_publish(wake)


class HubJobTopics:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def post(self, run_id: str, topic: str, text: str) -> None:
        command = wire.CreateMessage(topic, SENDER, text)
        self._hub.create_message(command, PRINCIPAL, run_id)


def _read(reader: Reader, number: int, limit: int) -> list[JobEvent]:
    return [JobEvent(*row) for row in reader.rows(_AFTER, (number, limit), limit=limit)]
