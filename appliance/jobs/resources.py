"""Segments and reports on HTTP."""

from typing import Any

import falcon

from appliance.jobs import byterange, metrics, wire
from appliance.jobs.service import Reports, Segments
from appliance.web.media import reply, reply_bytes
from appliance.web.route import Operation, Route

READ = "export:read"
MEDIA = {"parquet": "application/vnd.apache.parquet", "jsonl": "application/x-ndjson"}


class SegmentsResource:
    def __init__(self, segments: Segments) -> None:
        self._segments = segments

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._segments.list_after(req.context.query))

    def on_get_item(self, req: Any, resp: falcon.Response, name: str) -> None:
        one = self._segments.find(name)
        etag = f'"{one.sha256}"'
        resp.set_header("ETag", etag)
        resp.set_header("Accept-Ranges", "bytes")
        resp.set_header("Cache-Control", "private, immutable")
        span = None
        if req.get_header("If-Range") in (None, etag):
            resp.set_header("Content-Range", f"bytes */{one.bytes}")
            span = byterange.asked(req.get_header("Range"), one.bytes)
            resp.delete_header("Content-Range")
        start, stop = span or (0, one.bytes)
        if span is not None:
            resp.status = falcon.HTTP_206
            resp.set_header("Content-Range", f"bytes {start}-{stop - 1}/{one.bytes}")
        resp.content_type = MEDIA[one.format]
        resp.content_length = stop - start
        if req.context.method != "HEAD":
            metrics.downloads.labels("whole" if span is None else "part").inc()
            resp.stream = self._segments.open(one, start, stop)


class ReportsResource:
    def __init__(self, reports: Reports) -> None:
        self._reports = reports

    def on_get_activity(self, req: Any, resp: falcon.Response) -> None:
        reply_bytes(resp, self._reports.activity(req.context.query))


def routes(segments: Segments, reports: Reports) -> list[Route]:
    resource = SegmentsResource(segments)
    return [
        Route("/api/v1/segments", resource, {
            "GET": Operation(READ, reply=wire.SegmentList, query=wire.SegmentsQuery,
                             errors=(wire.SegmentsDamaged,),
                             summary="Closed segments of the log after an event, oldest first"),
        }),
        Route("/api/v1/segments/{name}", resource, {
            "GET": Operation(READ, media="application/octet-stream", again=206,
                             errors=(wire.SegmentNotFound, wire.RangeNotSatisfiable,
                                     wire.SegmentsDamaged),
                             summary="Download a segment, or with Range a part of it"),
        }, suffix="item"),
        Route("/api/v1/reports/activity", ReportsResource(reports), {
            "GET": Operation(READ, reply=wire.ActivityReport, query=wire.ActivityQuery,
                             errors=(wire.NothingInRange, wire.ReportUnavailable),
                             summary="What the activity job has counted, by day, channel, topic,"
                                     " sender and pair"),
        }, suffix="activity"),
    ]  # fmt: skip
