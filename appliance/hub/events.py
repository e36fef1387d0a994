"""The event log: appending in a transaction, and the JSON text that every listener gets.

`data_json` is stored as text and never parsed again: replayed and live events build equal envelopes
around that text.
"""

from functools import lru_cache
from typing import Any

import msgspec

from appliance.kernel.batch import Tx
from appliance.web.frame import text_frame

encode = msgspec.json.Encoder().encode

INSERT = (
    "INSERT INTO events (ts, name, scope_channel_id, scope_topic_id, scope_topic_id2,"
    " entity_type, entity_id, data_json) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


class CommittedEvent(msgspec.Struct, eq=False):
    """A committed event in the feed. `number` is the event_id."""

    number: int
    ts: str
    name: str
    channel_id: str | None
    topic_id: str | None
    topic_id2: str | None
    data: str
    _envelope: bytes | None = None
    _frame: bytes | None = None

    @property
    def envelope(self) -> bytes:
        """Return the event's JSON text (hub spec §0.9, "Event envelope"), built once."""
        if self._envelope is None:
            self._envelope = envelope(
                self.number, self.ts, self.name,
                self.channel_id, self.topic_id, self.topic_id2, self.data,
            )  # fmt: skip
        return self._envelope

    @property
    def frame(self) -> bytes:
        """Return the envelope as a WebSocket frame, built once for all sockets."""
        if self._frame is None:
            self._frame = text_frame(self.envelope)
        return self._frame


def append(
    tx: Tx,
    name: str,
    entity: tuple[str, str],
    data: bytes,
    *,
    channel_id: str | None,
    topic_id: str | None = None,
    topic_id2: str | None = None,
) -> int:
    """Write a change's event, in its transaction; return the event_id.

    entity  (type, id)
    data    a JSON object

    Every event needs a scope, because subscriptions match by scope (hub spec §0.9).
    """
    if channel_id is None and topic_id is None:
        raise ValueError(f"event {name} has no scope")
    text = data.decode()
    number = tx.execute(
        INSERT, (tx.now, name, channel_id, topic_id, topic_id2, *entity, text)
    ).lastrowid
    assert number is not None
    tx.publish(CommittedEvent(number, tx.now, name, channel_id, topic_id, topic_id2, text))
    return number


def envelope(
    number: int,
    ts: str,
    name: str,
    channel_id: str | None,
    topic_id: str | None,
    topic_id2: str | None,
    data: str,
) -> bytes:
    head = _head(name, channel_id, topic_id, topic_id2)
    return f'{{"type":"event","event_id":{number},"ts":"{ts}",{head}"data":{data}}}'.encode()


@lru_cache(maxsize=4096)
def _head(name: str, channel_id: str | None, topic_id: str | None, topic_id2: str | None) -> str:
    scope = {"channel_id": channel_id, "topic_id": topic_id, "topic_id2": topic_id2}
    present = {key: value for key, value in scope.items() if value is not None}
    return f'"name":{encode(name).decode()},"scope":{encode(present).decode()},'


def row_json(row: Any) -> bytes:
    """Return an event as `GET /api/v1/events` has it; `row` has `columns.EVENT_COLUMNS`."""
    number, ts, name, channel_id, topic_id, topic_id2, entity_type, entity_id, data = row
    if not data.isascii():  # another program may have stored bytes that are not UTF-8
        data = data.decode(errors="replace").encode()
    return b'{"event_id":%d,"ts":%b,%b%b},"data_json":%b}' % (
        number, encode(ts), _row_head(name, channel_id, topic_id, topic_id2, entity_type),
        encode(entity_id), data,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _row_head(name: str, *scope_and_type: str | None) -> bytes:
    *scope, entity_type = scope_and_type
    return b'%b"entity":{"type":%b,"id":' % (_head(name, *scope).encode(), encode(entity_type))
