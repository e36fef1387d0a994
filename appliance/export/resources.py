"""Serves the HTTP routes for segments, snapshots and reports."""

from collections.abc import Callable
from typing import Any

import falcon

from appliance.export import byterange, wire
from appliance.export.report_wire import (
    ActivityQuery,
    ActivityReport,
    DeliveryQuery,
    DeliveryReport,
)
from appliance.export.service import FileDownload, Reports, Segments, Snapshots
from appliance.kernel.route import Operation, Route
from appliance.web.media import reply_bytes
from appliance.web.responders import (
    Responder,
    Responders,
    arguments_of,
    reply_to_caller,
    reply_with,
)
from appliance.workspace.command_runner import CommandTooSlow

MEDIA = {"parquet": "application/vnd.apache.parquet", "jsonl": "application/x-ndjson"}


def send(req: Any, resp: falcon.Response, file: FileDownload) -> None:
    """Send the file or the requested range. Files never change, so the hash is the ETag."""
    etag = f'"{file.sha256}"'
    resp.set_header("ETag", etag)
    resp.set_header("Accept-Ranges", "bytes")
    resp.set_header("Cache-Control", "private, immutable")
    span = None
    if req.get_header("If-Range") in (None, etag):
        resp.set_header("Content-Range", f"bytes */{file.size}")
        span = byterange.parse_range(req.get_header("Range"), file.size)
        resp.delete_header("Content-Range")
    start, stop = span or (0, file.size)
    if span is not None:
        resp.status = falcon.HTTP_206
        resp.set_header("Content-Range", f"bytes {start}-{stop - 1}/{file.size}")
    resp.content_type = MEDIA[file.format]
    resp.content_length = stop - start
    if req.context.method != "HEAD":
        resp.stream = file.chunks(start, stop)


def _send_to_caller(verb: Callable[..., FileDownload]) -> Responder:
    def respond(req: Any, resp: falcon.Response, **fields: Any) -> None:
        send(req, resp, verb(*arguments_of(req, fields), req.context.principal))

    return respond


def _report_with(reports: Reports, name: str) -> Responder:
    def respond(req: Any, resp: falcon.Response) -> None:
        reply_bytes(resp, reports.run(name, req.context.query))

    return respond


def routes(segments: Segments, snapshots: Snapshots, reports: Reports) -> list[Route]:
    return [
        Route("/api/v1/segments", Responders(get=reply_to_caller(segments.list_after)), {
            "GET": Operation(wire.READ, also=(wire.DELIVERY,),
                             reply=wire.SegmentList, query=wire.SegmentsQuery,
                             errors=(wire.SegmentsDamaged,),
                             summary="List a log's segments after an event, oldest first"),
        }),
        Route("/api/v1/segments/{name}", Responders(get=_send_to_caller(segments.find)), {
            "GET": Operation(wire.READ, also=(wire.DELIVERY,), query=wire.SegmentQuery,
                             media="application/octet-stream", repeat_status=206,
                             errors=(wire.SegmentNotFound, wire.RangeNotSatisfiable,
                                     wire.SegmentsDamaged),
                             summary="Download a segment or a byte range"),
        }),
        Route("/api/v1/snapshots", Responders(get=reply_with(snapshots.newest)), {
            "GET": Operation(wire.READ, reply=wire.SnapshotList, query=wire.SnapshotsQuery,
                             errors=(wire.SegmentsDamaged,),
                             summary="List table snapshots, newest first, for an audit"),
        }),
        Route("/api/v1/snapshots/{name}/{file}", Responders(get=_send_to_caller(snapshots.find)), {
            "GET": Operation(wire.READ, media="application/octet-stream", repeat_status=206,
                             errors=(wire.SnapshotNotFound, wire.RangeNotSatisfiable,
                                     wire.SegmentsDamaged),
                             summary="Download a snapshot's table or a byte range"),
        }),
        Route("/api/v1/reports/activity", Responders(get=_report_with(reports, "activity")), {
            "GET": Operation(wire.READ, reply=ActivityReport, query=ActivityQuery,
                             errors=(wire.NothingInRange, wire.ReportUnavailable, CommandTooSlow),
                             summary="Report the activity by day, channel, topic, sender and pair"),
        }),
        Route("/api/v1/reports/delivery", Responders(get=_report_with(reports, "delivery")), {
            "GET": Operation(wire.DELIVERY, reply=DeliveryReport, query=DeliveryQuery,
                             errors=(wire.NothingInRange, wire.ReportUnavailable, CommandTooSlow),
                             summary="Report delivery durations, outcomes and dead letters"),
        }),
    ]  # fmt: skip
