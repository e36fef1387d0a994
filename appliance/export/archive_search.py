"""Finds messages in an archive. Reads one row group at a time, so memory is limited. Files from
other days and row groups without the channel are skipped."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from appliance.export import manifests, table_writer
from appliance.export.archive import Archive, ArchivedFile
from appliance.export.manifests import EVENTS

CREATED, EDITED = "message.created", "message.edited"
COLUMNS = ["event_id", "epoch", "ts", "name", "scope_channel_id", "scope_topic_id", "entity_id",
           "data_json"]  # fmt: skip
BATCH_ROWS = 4_096
BYTES_MAX = 8 * 1024 * 1024  # all hits' content together


class ArchiveQuery(msgspec.Struct, frozen=True):
    """A search. `first` and `last` are days in UTC, inclusive; the text is matched in any case.

    sender  matches created messages only: the log does not record who edited a message
    """

    text: str | None = None
    channel: str | None = None
    sender: str | None = None
    first: str | None = None
    last: str | None = None
    limit: int = 100


class ArchiveHit(msgspec.Struct, frozen=True):
    """A message's state: the posted text, or the edited text."""

    event_id: int
    epoch: str
    ts: str
    name: str
    channel_id: str | None
    topic_id: str | None
    message_id: str
    sender: str | None
    content: str


class ArchiveHits(msgspec.Struct):
    """Oldest first. `more`: the search ended at the limit of rows or bytes."""

    hits: list[ArchiveHit]
    more: bool = False


class _Created(msgspec.Struct, frozen=True):
    """The searched part of an event's message or channel."""

    id: str = ""
    name: str = ""
    sender: str | None = None
    content_raw: str | None = None


class _Data(msgspec.Struct, frozen=True):
    message: _Created = _Created()
    channel: _Created = _Created()
    new_content: str | None = None


def search(archive: Archive, query: ArchiveQuery) -> ArchiveHits:
    log = archive.log(EVENTS)
    cuts = dict(log.cuts)
    channels = None if query.channel is None else _channel_ids(archive, query.channel)
    result, size = ArchiveHits([]), 0
    for file in log.files:
        if not _has_day(file, query):
            continue
        for row in _rows(archive, file, (CREATED, EDITED), channels, query.text):
            if row["event_id"] > cuts.get(row["epoch"], row["event_id"]):
                continue  # discarded by a restore
            hit = _hit(row)
            if hit is None or not _matches(hit, query):
                continue
            size += len(hit.content)
            if len(result.hits) >= query.limit or size > BYTES_MAX:
                result.more = True
                return result
            result.hits.append(hit)
    return result


def _has_day(file: ArchivedFile, query: ArchiveQuery) -> bool:
    return (query.first or "") <= file.date <= (query.last or "9999-12-31")


def _channel_ids(archive: Archive, channel: str) -> list[str]:
    """Return the id itself, and the ids of channels that had this name."""
    ids = {channel}
    for file in archive.log(EVENTS).files:
        for row in _rows(archive, file, ("channel.created",), None, None):
            made = _data(row).channel
            if made.name == channel:
                ids.add(made.id)
    return sorted(ids)


def _rows(
    archive: Archive,
    file: ArchivedFile,
    names: tuple[str, ...],
    channels: list[str] | None,
    text: str | None,
) -> Iterator[dict[str, Any]]:
    """Yield the file's rows that may match. Row group statistics decide which groups are read."""
    dataset = table_writer.library("pyarrow.dataset")
    path = archive.folder / file.file
    manifests.check(path, file.bytes, None)
    wanted = dataset.field("name").isin(names)
    if channels is not None:
        wanted &= dataset.field("scope_channel_id").isin(channels)
    literal = text is not None and json.dumps(text)[1:-1] == text and "/" not in text
    if literal:  # JSON writes the text unchanged
        compute = table_writer.library("pyarrow.compute")
        wanted &= compute.match_substring(dataset.field("data_json"), text, ignore_case=True)
    with table_writer.parquet_errors(file.file):
        scanned = dataset.dataset(path, format="parquet").scanner(
            columns=COLUMNS, filter=wanted, batch_size=BATCH_ROWS, batch_readahead=1,
            fragment_readahead=1, use_threads=False,
        )  # fmt: skip
        for batch in scanned.to_batches():
            yield from batch.to_pylist()


def _hit(row: dict[str, Any]) -> ArchiveHit | None:
    """Return the row's match; None for a row that no hub writes."""
    data = _data(row)
    content = data.message.content_raw if row["name"] == CREATED else data.new_content
    if content is None:
        return None
    return ArchiveHit(
        event_id=row["event_id"],
        epoch=row["epoch"],
        ts=row["ts"].isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        name=row["name"],
        channel_id=row["scope_channel_id"],
        topic_id=row["scope_topic_id"],
        message_id=row["entity_id"],
        sender=data.message.sender,
        content=content,
    )


def _matches(hit: ArchiveHit, query: ArchiveQuery) -> bool:
    if query.sender is not None and hit.sender != query.sender:
        return False
    return query.text is None or query.text.casefold() in hit.content.casefold()


def _data(row: dict[str, Any]) -> _Data:
    try:
        return msgspec.json.decode(row["data_json"], type=_Data)
    except msgspec.DecodeError:
        return _Data()
