"""Converts events to CloudEvents 1.0: another envelope around the same data. Pure.

    id       epoch and event_id, so that ids stay unique after a restore
    source   the database, which stays the same across restarts and restores
    type     the event's name with a prefix: dev.agentlip.message.created
    subject  the topic, or else the channel
    sequence  (an official extension) sorts as a string in the order of the log
    principal  (a custom extension) the token or plugin that caused the event, if known
    traceparent  (the extension Distributed Tracing) that of the request, if it had one

Source: github.com/cloudevents/spec, the JSON format 1.0.2 and its batch.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from appliance.hub import wire

SINGLE = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
TYPE_PREFIX = "dev.agentlip."
ABSENT = msgspec.Raw()

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_DATA_LINE = b"data: "


class Origin(msgspec.Struct, frozen=True):
    """The source of events. `epoch`: the current one; `epochs`: (first event id, epoch) of all
    epochs if there are several, in their order."""

    source: str
    epoch: str
    epochs: tuple[tuple[int, str], ...] = ()


class LoggedEvent(msgspec.Struct, frozen=True):
    """An event of an envelope (`data`) or of a list (`data_json`)."""

    event_id: int
    ts: str
    name: str
    scope: wire.Scope
    data: msgspec.Raw = ABSENT
    data_json: msgspec.Raw = ABSENT


class EventCause(msgspec.Struct, frozen=True):
    """The part of an event's data that is read here."""

    principal: Any = None
    traceparent: Any = None


class LoggedEventList(msgspec.Struct, frozen=True):
    """The body of `GET /api/v1/events`."""

    events: list[LoggedEvent]
    replay_until: int


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The members of the JSON format, in output order."""

    specversion: str
    id: str
    source: str
    type: str
    time: str
    subject: str | msgspec.UnsetType = msgspec.UNSET
    sequence: str
    principal: str | msgspec.UnsetType = msgspec.UNSET
    traceparent: str | msgspec.UnsetType = msgspec.UNSET
    datacontenttype: str
    data: msgspec.Raw


_encode = msgspec.json.Encoder().encode
_decode_event = msgspec.json.Decoder(LoggedEvent).decode
_decode_cause = msgspec.json.Decoder(EventCause).decode
_decode_list = msgspec.json.Decoder(LoggedEventList).decode


def origin_of(db_id: str, epoch: str, epochs: tuple[tuple[int, str], ...] = ()) -> Origin:
    source = f"urn:uuid:{db_id.lower()}" if _UUID.fullmatch(db_id) else f"/agentlip/{quote(db_id)}"
    return Origin(source, epoch, epochs)


def event_id_of(origin: Origin, number: int) -> str:
    """The id of an event outside of this hub. It has the epoch in which the event was written, so
    it stays the same after a restore, and receivers recognize what they already have."""
    epoch = origin.epoch
    for first, name in reversed(origin.epochs):
        if number >= first:
            epoch = name
            break
    return f"{epoch}:{number}"


def of_event(event: LoggedEvent, origin: Origin) -> bytes:
    """One event in the JSON format."""
    data = event.data if event.data_json == ABSENT else event.data_json
    cause = _cause_of(data)
    return _encode(
        CloudEvent(
            specversion="1.0",
            id=event_id_of(origin, event.event_id),
            source=origin.source,
            type=TYPE_PREFIX + event.name,
            time=event.ts,
            subject=event.scope.topic_id or event.scope.channel_id or msgspec.UNSET,
            sequence=f"{event.event_id:019d}",
            principal=cause.principal,
            traceparent=cause.traceparent,
            datacontenttype="application/json",
            data=data,
        )
    )


def _cause_of(data: msgspec.Raw) -> EventCause:
    """Members are UNSET without a valid value: other programs may write anything there."""
    try:
        cause = _decode_cause(data)
    except msgspec.DecodeError:
        cause = EventCause()
    return EventCause(_printable(cause.principal), _printable(cause.traceparent))


def _printable(value: Any) -> str | msgspec.UnsetType:
    return value if isinstance(value, str) and value and value.isprintable() else msgspec.UNSET


def of_envelope(envelope: bytes, origin: Origin) -> bytes:
    """The same for an envelope from a socket or stream."""
    return of_event(_decode_event(envelope), origin)


def of_list(body: bytes, origin: Origin) -> tuple[bytes, int]:
    """A list of events in the batch format, and the cursor to continue from.

    The format has no field for `replay_until`, so the cursor is returned separately.
    """
    listed = _decode_list(body)
    cursor = listed.events[-1].event_id if listed.events else listed.replay_until
    return b"[%b]" % b",".join(of_event(event, origin) for event in listed.events), cursor


class ByteStream(Protocol):
    """The bytes of a text/event-stream; the caller closes it."""

    def __iter__(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...


class CloudEventStream:
    """A text/event-stream with its events converted to CloudEvents."""

    def __init__(self, pieces: ByteStream, origin: Origin) -> None:
        self._pieces = pieces
        self._origin = origin

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            yield b"\n".join(self._convert(piece.split(b"\n")))

    def close(self) -> None:
        self._pieces.close()

    def _convert(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        for line in lines:
            if line.startswith(_DATA_LINE):
                line = _DATA_LINE + of_envelope(line[len(_DATA_LINE) :], self._origin)
            yield line


def is_requested(accept: str | None, media: str) -> bool:
    """Whether an `Accept` header lists `media` with at least the weight of JSON."""
    weights = dict(_weights(accept or ""))
    wanted = weights.get(media, 0.0)
    return wanted > 0 and wanted >= weights.get("application/json", 0.0)


def _weights(accept: str) -> Iterator[tuple[str, float]]:
    for part in accept.split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = next((text[2:] for text in parameters if text.startswith("q=")), "1")
        try:
            yield media, float(weight)
        except ValueError:
            yield media, 0.0
