"""Segments, snapshots and reports on HTTP."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import falcon

from appliance.export import byterange, metrics, wire
from appliance.export.child import ChildTooSlow
from appliance.export.service import Reports, Segments, Snapshots
from appliance.kernel.route import Operation, Route
from appliance.web.media import reply, reply_bytes

MEDIA = {"parquet": "application/vnd.apache.parquet", "jsonl": "application/x-ndjson"}


class SegmentsResource:
    def __init__(self, segments: Segments) -> None:
        self._segments = segments

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._segments.list_after(req.context.query))

    def on_get_item(self, req: Any, resp: falcon.Response, name: str) -> None:
        one = self._segments.find(name)
        open_part = partial(self._segments.open, one)
        send(req, resp, File(one.bytes, one.sha256, one.format), open_part)


class SnapshotsResource:
    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._snapshots.newest(req.context.query))

    def on_get_file(self, req: Any, resp: falcon.Response, name: str, file: str) -> None:
        one = self._snapshots.find(name, file)
        open_part = partial(self._snapshots.open, name, one)
        send(req, resp, File(one.bytes, one.sha256, file.rpartition(".")[2]), open_part)


class File(NamedTuple):
    """What is to be sent; `format` is parquet or jsonl."""

    bytes: int
    sha256: str
    format: str


def send(
    req: Any,
    resp: falcon.Response,
    file: File,
    open_part: Callable[[int, int], Iterator[bytes]],
) -> None:
    """The file or the part of it that is asked for, with its hash as ETag. It never changes."""
    etag = f'"{file.sha256}"'
    resp.set_header("ETag", etag)
    resp.set_header("Accept-Ranges", "bytes")
    resp.set_header("Cache-Control", "private, immutable")
    span = None
    if req.get_header("If-Range") in (None, etag):
        resp.set_header("Content-Range", f"bytes */{file.bytes}")
        span = byterange.asked(req.get_header("Range"), file.bytes)
        resp.delete_header("Content-Range")
    start, stop = span or (0, file.bytes)
    if span is not None:
        resp.status = falcon.HTTP_206
        resp.set_header("Content-Range", f"bytes {start}-{stop - 1}/{file.bytes}")
    resp.content_type = MEDIA.get(file.format, "application/octet-stream")
    resp.content_length = stop - start
    if req.context.method != "HEAD":
        metrics.downloads.labels("whole" if span is None else "part").inc()
        resp.stream = open_part(start, stop)


class ReportsResource:
    def __init__(self, reports: Reports) -> None:
        self._reports = reports

    def on_get_activity(self, req: Any, resp: falcon.Response) -> None:
        reply_bytes(resp, self._reports.activity(req.context.query))


def routes(segments: Segments, snapshots: Snapshots, reports: Reports) -> list[Route]:
    resource, tables = SegmentsResource(segments), SnapshotsResource(snapshots)
    return [
        Route("/api/v1/segments", resource, {
            "GET": Operation(wire.READ, reply=wire.SegmentList, query=wire.SegmentsQuery,
                             errors=(wire.SegmentsDamaged,),
                             summary="Closed segments of the log after an event, oldest first"),
        }),
        Route("/api/v1/segments/{name}", resource, {
            "GET": Operation(wire.READ, media="application/octet-stream", again=206,
                             errors=(wire.SegmentNotFound, wire.RangeNotSatisfiable,
                                     wire.SegmentsDamaged),
                             summary="Download a segment, or with Range a part of it"),
        }, suffix="item"),
        Route("/api/v1/snapshots", tables, {
            "GET": Operation(wire.READ, reply=wire.SnapshotList, query=wire.SnapshotsQuery,
                             errors=(wire.SegmentsDamaged,),
                             summary="Snapshots of the tables, newest first, for an audit"),
        }),
        Route("/api/v1/snapshots/{name}/{file}", tables, {
            "GET": Operation(wire.READ, media="application/octet-stream", again=206,
                             errors=(wire.SnapshotNotFound, wire.RangeNotSatisfiable,
                                     wire.SegmentsDamaged),
                             summary="Download a table of a snapshot, or with Range a part of it"),
        }, suffix="file"),
        Route("/api/v1/reports/activity", ReportsResource(reports), {
            "GET": Operation(wire.READ, reply=wire.ActivityReport, query=wire.ActivityQuery,
                             errors=(wire.NothingInRange, wire.ReportUnavailable, ChildTooSlow),
                             summary="What the activity job has counted, by day, channel, topic,"
                                     " sender and pair"),
        }, suffix="activity"),
    ]  # fmt: skip
