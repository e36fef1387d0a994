"""The courier's HTTP API: a class for each resource, and the table of routes."""

from typing import Any

import falcon

from appliance.courier import metrics, wire
from appliance.courier.access import USE
from appliance.courier.admin import CourierAdmin
from appliance.courier.live_view import LiveView, LiveViewEvents
from appliance.courier.registration import registration
from appliance.courier.service import Courier
from appliance.kernel.caller import is_there
from appliance.kernel.route import Operation, Route
from appliance.web.media import reply, reply_bytes
from appliance.web.sse_stream import SseStream


class EnvelopeResource:
    def __init__(self, courier: Courier, admin: CourierAdmin) -> None:
        self._courier = courier
        self._admin = admin

    def on_post(self, req: Any, resp: falcon.Response, command: wire.Enqueue) -> None:
        who = req.context.principal
        reply(resp, self._courier.enqueue(who, command.to, command.envelope))

    def on_post_batch(self, req: Any, resp: falcon.Response, command: wire.EnqueueBatch) -> None:
        who = req.context.principal
        reply(resp, self._courier.enqueue_batch(who, command.to, command.envelopes))

    def on_get_item(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._admin.envelope(req.context.principal, req.context.query))

    def on_get_peek(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._admin.peek(req.context.principal, req.context.query))


class DeliveryResource:
    """Receive, ack, nack and extend over HTTP."""

    def __init__(self, courier: Courier) -> None:
        self._courier = courier

    def on_post(self, req: Any, resp: falcon.Response, command: wire.ReceiveRequest) -> None:
        reply(resp, self._courier.receive_envelopes(req.context.principal, command, is_there))

    def on_post_ack(self, req: Any, resp: falcon.Response, command: wire.AckRequest) -> None:
        consumer = self._courier.receiver(req.context.principal, command.receiver)
        lost = self._courier.ack(consumer, command.ids)
        reply(resp, self._courier.report_leases(consumer, command.ids, lost))

    def on_post_nack(self, req: Any, resp: falcon.Response, command: wire.NackRequest) -> None:
        consumer = self._courier.receiver(req.context.principal, command.receiver)
        lost = self._courier.nack(
            consumer, command.ids, command.mode, command.delay_ms, command.error
        )
        reply(resp, self._courier.report_leases(consumer, command.ids, lost))

    def on_post_extend(self, req: Any, resp: falcon.Response, command: wire.ExtendRequest) -> None:
        consumer = self._courier.receiver(req.context.principal, command.receiver)
        lost = self._courier.extend(consumer, command.ids, command.lease_ms)
        reply(resp, self._courier.report_leases(consumer, command.ids, lost))


class StatsResource:
    def __init__(self, admin: CourierAdmin) -> None:
        self._admin = admin

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        who, stream = req.context.principal, req.context.query.stream
        if stream is None:
            reply(resp, self._admin.all_stats(who))
        else:
            reply(resp, self._admin.stats(who, stream))


class StreamResource:
    """Operations on streams: pause, resume, redrive, kick, purge."""

    def __init__(self, admin: CourierAdmin) -> None:
        self._admin = admin

    def on_post_pause(self, req: Any, resp: falcon.Response, command: wire.Pause) -> None:
        reply(resp, self._admin.pause(req.context.principal, command))

    def on_post_resume(self, req: Any, resp: falcon.Response, command: wire.Resume) -> None:
        reply(resp, self._admin.resume(req.context.principal, command))

    def on_post_redrive(self, req: Any, resp: falcon.Response, command: wire.Selection) -> None:
        reply(resp, self._admin.redrive(req.context.principal, command))

    def on_post_kick(self, req: Any, resp: falcon.Response, command: wire.Selection) -> None:
        reply(resp, self._admin.kick(req.context.principal, command))

    def on_post_purge(self, req: Any, resp: falcon.Response, command: wire.Selection) -> None:
        reply(resp, self._admin.purge(req.context.principal, command))


class CourierMetricsResource:
    """`/v1/metrics`: JSON by stream, or Prometheus text if `Accept` asks for text."""

    def __init__(self, admin: CourierAdmin) -> None:
        self._admin = admin

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        accepted = req.env.get("HTTP_ACCEPT", "")
        if "text/plain" in accepted or "openmetrics" in accepted:
            media = "text/plain; version=0.0.4; charset=utf-8"
            reply_bytes(resp, metrics.exposition(), media=media)
        else:
            reply(resp, self._admin.all_stats(req.context.principal))


class ViewResource:
    def __init__(self, courier: Courier, admin: CourierAdmin) -> None:
        self._courier = courier
        self._admin = admin

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._admin.snapshot(req.context.principal, req.context.query))

    def on_get_live(self, req: Any, resp: falcon.Response) -> None:
        live = LiveView(self._courier, req.context.principal, req.context.query)
        resp.content_type = "text/event-stream"
        resp.set_header("X-Accel-Buffering", "no")
        resp.stream = SseStream(LiveViewEvents(live), self._courier.waits.enter)


class RuleResource:
    def __init__(self, admin: CourierAdmin) -> None:
        self._admin = admin

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, {"rules": self._admin.rules(req.context.principal)})

    def on_post_dry_run(self, req: Any, resp: falcon.Response, command: wire.DryRun) -> None:
        matches = self._admin.dry_run(req.context.principal, command)
        reply(resp, {"rules": matches, "fires": [match.rule for match in matches if match.fires]})


class RegistrationResource:
    def __init__(self, courier: Courier, auth: str) -> None:
        self._courier = courier
        self._auth = auth

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        host, port = req.env.get("SERVER_NAME", ""), req.env.get("SERVER_PORT", "0")
        streams = len(self._courier.queue.streams)
        number = int(port) if str(port).isdecimal() else 0
        reply(resp, registration(host, number, self._courier.boot_id, self._auth, streams))


def routes(courier: Courier, admin: CourierAdmin, auth: str) -> list[Route]:
    """`auth` is yes or optional, for `/v1/advertise`."""
    envelopes = EnvelopeResource(courier, admin)
    return [
        *_envelope_routes(courier, envelopes),
        *_read_routes(courier, admin, envelopes, auth),
        *_admin_routes(admin),
    ]


def _envelope_routes(courier: Courier, envelopes: EnvelopeResource) -> list[Route]:
    deliveries = DeliveryResource(courier)
    return [
        Route("/v1/enqueue", envelopes, {
            "POST": Operation(USE, body=wire.Enqueue, reply=wire.Enqueued,
                              summary="Enqueue an envelope"),
        }),
        Route("/v1/enqueue/batch", envelopes, {
            "POST": Operation(USE, body=wire.EnqueueBatch, reply=wire.EnqueuedBatch, batch=True,
                              cost=lambda command: len(command.envelopes),
                              summary="Enqueue up to 1,000 envelopes, all or none"),
        }, suffix="batch"),
        Route("/v1/receive", deliveries, {
            "POST": Operation(USE, body=wire.ReceiveRequest, reply=wire.Received,
                              summary="Lease envelopes; with `wait`, wait for the first one"),
        }),
        Route("/v1/ack", deliveries, {
            "POST": Operation(USE, body=wire.AckRequest, reply=wire.LeaseResult,
                              summary="Ack envelopes: they are done"),
        }, suffix="ack"),
        Route("/v1/nack", deliveries, {
            "POST": Operation(USE, body=wire.NackRequest, reply=wire.LeaseResult,
                              summary="Nack envelopes: release, fail or reject them"),
        }, suffix="nack"),
        Route("/v1/extend", deliveries, {
            "POST": Operation(USE, body=wire.ExtendRequest, reply=wire.LeaseResult,
                              summary="Extend leases"),
        }, suffix="extend"),
    ]  # fmt: skip


def _read_routes(
    courier: Courier, admin: CourierAdmin, envelopes: EnvelopeResource, auth: str
) -> list[Route]:
    views = ViewResource(courier, admin)
    return [
        Route("/v1/envelope", envelopes, {
            "GET": Operation(USE, query=wire.EnvelopeQuery, reply=wire.EnvelopeDetails,
                             summary="One envelope of a stream, with its state and history"),
        }, suffix="item"),
        Route("/v1/peek", envelopes, {
            "GET": Operation(USE, query=wire.PeekQuery, reply=wire.EnvelopePage,
                             summary="List envelopes of a stream without leasing them"),
        }, suffix="peek"),
        Route("/v1/stats", StatsResource(admin), {
            "GET": Operation(USE, query=wire.StatsQuery,
                             summary="Statistics of one stream, or of all streams"),
        }),
        Route("/v1/metrics", CourierMetricsResource(admin), {
            "GET": Operation(USE,
                             summary="Statistics of all streams; Prometheus text by `Accept`"),
        }),
        Route("/v1/snapshot", views, {
            "GET": Operation(USE, query=wire.ViewQuery, reply=wire.ViewSnapshot,
                             summary="The rows of a view, and its version (`watermark`)"),
        }),
        Route("/v1/live", views, {
            "GET": Operation(USE, query=wire.LiveQuery, media="text/event-stream",
                             summary="Changes of a view as server-sent events"),
        }, suffix="live"),
        Route("/v1/advertise", RegistrationResource(courier, auth), {
            "GET": Operation(USE, summary="Registration data for a Hostess, kernel or Router"),
        }),
    ]  # fmt: skip


def _admin_routes(admin: CourierAdmin) -> list[Route]:
    streams, rules = StreamResource(admin), RuleResource(admin)
    return [
        Route("/v1/streams/pause", streams, {
            "POST": Operation(USE, body=wire.Pause, reply=wire.Paused,
                              summary="Pause deliveries from a stream, with or without an end"),
        }, suffix="pause"),
        Route("/v1/streams/resume", streams, {
            "POST": Operation(USE, body=wire.Resume, reply=wire.Paused,
                              summary="Resume deliveries from a stream"),
        }, suffix="resume"),
        Route("/v1/streams/redrive", streams, {
            "POST": Operation(USE, body=wire.Selection, reply=wire.SelectionResult,
                              summary="Redrive dead letters: make them ready again"),
        }, suffix="redrive"),
        Route("/v1/streams/kick", streams, {
            "POST": Operation(USE, body=wire.Selection, reply=wire.SelectionResult,
                              summary="Kick delayed envelopes: make them ready now"),
        }, suffix="kick"),
        Route("/v1/streams/purge", streams, {
            "POST": Operation(USE, body=wire.Selection, reply=wire.SelectionResult,
                              summary="Purge envelopes: remove them permanently"),
        }, suffix="purge"),
        Route("/v1/rules", rules, {
            "GET": Operation(USE, summary="List triggers, and how often each fired"),
        }),
        Route("/v1/rules/dry-run", rules, {
            "POST": Operation(USE, body=wire.DryRun,
                              summary="Test which triggers an envelope would fire"),
        }, suffix="dry_run"),
    ]  # fmt: skip
