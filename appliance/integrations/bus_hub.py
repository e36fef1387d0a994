"""Posts worker state changes into a hub topic (`bus.hub_topic`).

One hub transaction writes the messages and the bus position, so after a crash at any moment the
loop continues behind the last posted change.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from appliance.busfile import messages, payloads
from appliance.busfile.messages import COLUMNS, BusMessage
from appliance.busfile.payloads import StateChange
from appliance.hub import writes
from appliance.hub.text import plain_name
from appliance.kernel import meta
from appliance.kernel.blank import is_printable
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Invalid
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.reader import snapshot
from appliance.kernel.store import Store
from appliance.kernel.store_errors import StoreAbsent

SENDER = "bus"
PRINCIPAL = "appliance:bus"  # no token can have this name
POSITION = "bus_position"  # in the hub's `meta`: the last posted message's number
BATCH_MAX = 100
NAME_LENGTH_MAX = 200
# The unary plus: by the type index, SQLite would read and sort all changes.
CHANGES = f"""SELECT {COLUMNS} FROM messages WHERE seq > ? AND +type = 'state_change'
    ORDER BY seq LIMIT ?"""


class BusTopicPoster(Loop):
    """Posts each change once. The first run starts at the newest bus message."""

    name = "bus_topic"
    interval_seconds = 2.0

    def __init__(self, hub: Store, bus: Store, topic: str, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._hub = hub
        self._bus = bus
        self._topic = topic
        self._position: int | None = None

    def run_once(self, now_ms: int) -> dict[str, int]:
        if self._position is None:
            self._position = self._begin()
        changes: list[BusMessage] = []
        with suppress(StoreAbsent):
            head, changes = self._bus.read(next_changes, self._position)
            if changes:
                texts = [text for change in changes if (text := describe(change))]
                self._hub.write(post, self._topic, texts, changes[-1].seq)
            self._position = head
        if len(changes) == BATCH_MAX:
            self._position = changes[-1].seq
            self.nudge()
        return {"posted": len(changes)}

    def _begin(self) -> int:
        head = 0  # everything on a bus that is made later is new
        with suppress(StoreAbsent):
            head = self._bus.read(messages.head)
        return int(self._hub.write(begin, head))


def next_changes(reader: Any, position: int) -> tuple[int, list[BusMessage]]:
    """Return the newest message's number, and the next changes. A new bus file has lower numbers,
    and is read from the beginning."""
    with snapshot(reader.connection):
        head = messages.head(reader)
        rows = reader.execute(CHANGES, (position if position <= head else 0, BATCH_MAX))
        return head, [messages.to_message(row) for row in rows]


def describe(message: BusMessage) -> str | None:
    """Return a line for a change; None if another program published a payload without a state."""
    change = None
    with suppress(Invalid):
        change = payloads.typed_payload(message.type, message.payload)
    if not isinstance(change, StateChange):
        return None
    before = "" if change.from_state is None else f"{_plain(change.from_state)} → "
    task = _plain(message.correlation_id or "a task")
    return f"{task}: {before}{_plain(change.to_state)} ({_plain(message.from_agent)})"


def _plain(name: str) -> str:
    return (name if is_printable(name) else ascii(name))[:NAME_LENGTH_MAX]


def begin(tx: Any, head: int) -> int:
    """Return the stored position, and store `head` as the first one."""
    if meta.value(tx, POSITION) is None:
        tx.execute(meta.SET, (POSITION, str(head)))
    return int(meta.value(tx, POSITION) or 0)


def post(tx: Any, topic: str, texts: Sequence[str], position: int) -> None:
    channel, title = map(plain_name, topic.split("/", 1))
    topic_id = writes.find_or_create_topic(tx, channel, title, PRINCIPAL)
    for text in texts:
        writes.create_message(tx, topic_id, SENDER, text, PRINCIPAL)
    tx.execute(meta.SET, (POSITION, str(position)))
