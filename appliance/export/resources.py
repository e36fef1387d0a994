"""Serves the HTTP routes for segments, snapshots and reports."""

from collections.abc import Callable
from typing import Any

import falcon

from appliance.export import wire
from appliance.export.report_wire import (
    ActivityQuery,
    ActivityReport,
    DeliveryQuery,
    DeliveryReport,
)
from appliance.export.service import FileDownload, Reports, Segments, Snapshots
from appliance.kernel.route import Operation, Route
from appliance.web.byterange import Download, RangeNotSatisfiable, send_file
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
    send_file(req, resp, Download(file.size, file.sha256, MEDIA[file.format], file.chunks))


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
                             errors=(wire.SegmentNotFound, RangeNotSatisfiable,
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
                             errors=(wire.SnapshotNotFound, RangeNotSatisfiable,
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
