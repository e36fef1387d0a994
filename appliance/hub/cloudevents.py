"""The CloudEvents 1.0 view of an event: another envelope around the same data. Pure.

    id       epoch and event_id, so that a restored history never repeats one
    source   the database, which is the same over restarts and restores
    type     the event's name behind ours in reverse: dev.agentlip.message.created
    subject  the topic it is about, or else the channel
    sequence  (an official extension) sorts as text in the order of the log
    principal  (an extension of ours) the token or plugin that caused it, where that is known

Source: github.com/cloudevents/spec, the JSON format 1.0.2 and its batch.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

SINGLE = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
TYPE_PREFIX = "dev.agentlip."
ABSENT = msgspec.Raw()

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_DATA_LINE = b"data: "


class Origin(msgspec.Struct, frozen=True):
    """Where events come from: the same for all of one history."""

    source: str
    epoch: str


class Scope(msgspec.Struct, frozen=True):
    channel_id: str | None = None
    topic_id: str | None = None


class Logged(msgspec.Struct, frozen=True):
    """An event as an envelope (`data`) or a row of a list (`data_json`) tells it."""

    event_id: int
    ts: str
    name: str
    scope: Scope
    data: msgspec.Raw = ABSENT
    data_json: msgspec.Raw = ABSENT


class Caused(msgspec.Struct, frozen=True):
    """What is read of an event's data."""

    principal: Any = None


class Listed(msgspec.Struct, frozen=True):
    """The body of `GET /api/v1/events`."""

    events: list[Logged]
    replay_until: int


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The members of the JSON format, in the order in which they are written."""

    specversion: str
    id: str
    source: str
    type: str
    time: str
    subject: str | msgspec.UnsetType = msgspec.UNSET
    sequence: str
    principal: str | msgspec.UnsetType = msgspec.UNSET
    datacontenttype: str
    data: msgspec.Raw


_encode = msgspec.json.Encoder().encode
_decode_one = msgspec.json.Decoder(Logged).decode
_decode_caused = msgspec.json.Decoder(Caused).decode
_decode_list = msgspec.json.Decoder(Listed).decode


def origin_of(db_id: str, epoch: str) -> Origin:
    source = f"urn:uuid:{db_id.lower()}" if _UUID.fullmatch(db_id) else f"/agentlip/{quote(db_id)}"
    return Origin(source, epoch)


def event_id_of(origin: Origin, number: int) -> str:
    """What an event is called outside of this hub."""
    return f"{origin.epoch}:{number}"


def of_event(event: Logged, origin: Origin) -> bytes:
    """One event in the JSON format."""
    data = event.data if event.data_json == ABSENT else event.data_json
    return _encode(
        CloudEvent(
            specversion="1.0",
            id=event_id_of(origin, event.event_id),
            source=origin.source,
            type=TYPE_PREFIX + event.name,
            time=event.ts,
            subject=event.scope.topic_id or event.scope.channel_id or msgspec.UNSET,
            sequence=f"{event.event_id:019d}",
            principal=_principal_of(data),
            datacontenttype="application/json",
            data=data,
        )
    )


def _principal_of(data: msgspec.Raw) -> str | msgspec.UnsetType:
    """Other programs may write anything there, or nothing."""
    try:
        found = _decode_caused(data).principal
    except msgspec.DecodeError:
        return msgspec.UNSET
    return found if isinstance(found, str) and found and found.isprintable() else msgspec.UNSET


def of_envelope(envelope: bytes, origin: Origin) -> bytes:
    """The same for an envelope as sockets and streams get it."""
    return of_event(_decode_one(envelope), origin)


def of_list(body: bytes, origin: Origin) -> tuple[bytes, int]:
    """A list of events in the batch format, and the cursor to go on from.

    The format has no room for `replay_until`, so the cursor is told beside it.
    """
    listed = _decode_list(body)
    cursor = listed.events[-1].event_id if listed.events else listed.replay_until
    return b"[%b]" % b",".join(of_event(event, origin) for event in listed.events), cursor


class Pieces(Protocol):
    """The bytes of a text/event-stream, which somebody has to close."""

    def __iter__(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...


class Stream:
    """A text/event-stream whose events are told as CloudEvents."""

    def __init__(self, pieces: Pieces, origin: Origin) -> None:
        self._pieces = pieces
        self._origin = origin

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            yield b"\n".join(self._retold(piece.split(b"\n")))

    def close(self) -> None:
        self._pieces.close()

    def _retold(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        for line in lines:
            if line.startswith(_DATA_LINE):
                line = _DATA_LINE + of_envelope(line[len(_DATA_LINE) :], self._origin)
            yield line


def asked_for(accept: str | None, media: str) -> bool:
    """Whether an Accept header names `media` itself, and names JSON with no larger weight."""
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
