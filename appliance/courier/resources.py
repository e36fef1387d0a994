"""Serves the courier's HTTP API: a class for each resource, and the route table."""

from collections.abc import Callable
from functools import partial
from typing import Any

import falcon

from appliance.courier import metrics, wire
from appliance.courier.access import USE
from appliance.courier.admin import CourierAdmin
from appliance.courier.live_view import LiveView, LiveViewEvents
from appliance.courier.registration import registration
from appliance.courier.service import Courier
from appliance.kernel.auth import Principal
from appliance.kernel.caller import is_there
from appliance.kernel.route import Operation, Route
from appliance.web.exposition import Exposition
from appliance.web.media import reply, reply_bytes
from appliance.web.responders import Responder, Responders, reply_to_caller, reply_with_events
from appliance.web.sse_stream import SseStream


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


class CourierMetricsResource:
    """`/v1/metrics`: JSON by stream, or Prometheus text if `Accept` asks for text."""

    def __init__(self, admin: CourierAdmin, monotonic: Callable[[], float]) -> None:
        self._admin = admin
        self._exposition = Exposition(metrics.COURIER_REGISTRY, monotonic)

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        accepted = req.env.get("HTTP_ACCEPT", "")
        if "text/plain" in accepted or "openmetrics" in accepted:
            text, media, _ = self._exposition.read(accepted)
            reply_bytes(resp, text, media=media)
        else:
            reply(resp, self._admin.all_stats(req.context.principal))


def _stream_view(
    courier: Courier, query: wire.LiveQuery, _last_id: str | None, who: Principal
) -> SseStream:
    return SseStream(LiveViewEvents(LiveView(courier, who, query)), courier.waits.enter)


class RegistrationResource:
    def __init__(self, courier: Courier, auth: str) -> None:
        self._courier = courier
        self._auth = auth

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        host, port = req.env.get("SERVER_NAME", ""), req.env.get("SERVER_PORT", "0")
        streams = len(self._courier.queue.streams)
        number = int(port) if str(port).isdecimal() else 0
        reply(resp, registration(host, number, self._courier.boot_id, self._auth, streams))


def _reply(verb: Callable[..., Any]) -> Responder:
    """Reply with a courier verb's result; the verb's first argument is the caller."""
    return reply_to_caller(lambda *given: verb(given[-1], *given[:-1]))


def routes(courier: Courier, admin: CourierAdmin, auth: str) -> list[Route]:
    """Return the routes. `auth` is yes or optional, for `/v1/advertise`."""
    return [*_envelope_routes(courier), *_read_routes(courier, admin, auth), *_admin_routes(admin)]


def _envelope_routes(courier: Courier) -> list[Route]:
    deliveries = DeliveryResource(courier)
    return [
        Route("/v1/enqueue", Responders(
            post=_reply(lambda who, command: courier.enqueue(who, command.to, command.envelope)),
        ), {
            "POST": Operation(USE, body=wire.Enqueue, reply=wire.Enqueued,
                              summary="Enqueue an envelope"),
        }),
        Route("/v1/enqueue/batch", Responders(
            post=_reply(lambda who, command: courier.enqueue_batch(
                who, command.to, command.envelopes
            )),
        ), {
            "POST": Operation(USE, body=wire.EnqueueBatch, reply=wire.EnqueuedBatch, batch=True,
                              cost=lambda command: len(command.envelopes),
                              summary="Enqueue up to 1,000 envelopes, all or none"),
        }),
        Route("/v1/receive", deliveries, {
            "POST": Operation(USE, body=wire.ReceiveRequest, reply=wire.Received,
                              summary="Lease envelopes; with `wait`, wait for the first one",
                              bounded="use"),
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


def _read_routes(courier: Courier, admin: CourierAdmin, auth: str) -> list[Route]:
    return [
        Route("/v1/envelope", Responders(get=_reply(admin.envelope)), {
            "GET": Operation(USE, query=wire.EnvelopeQuery, reply=wire.EnvelopeDetails,
                             summary="Get one envelope with its state and history"),
        }),
        Route("/v1/peek", Responders(get=_reply(admin.peek)), {
            "GET": Operation(USE, query=wire.PeekQuery, reply=wire.EnvelopePage,
                             summary="List a stream's envelopes without leasing them"),
        }),
        Route("/v1/stats", Responders(
            get=_reply(lambda who, query: admin.all_stats(who) if query.stream is None
                       else admin.stats(who, query.stream)),
        ), {
            "GET": Operation(USE, query=wire.StatsQuery,
                             summary="Show statistics for one stream, or for all streams"),
        }),
        Route("/v1/metrics", CourierMetricsResource(admin, courier.clock.monotonic), {
            "GET": Operation(USE,
                             summary="Show all streams' statistics; Prometheus text by `Accept`"),
        }),
        Route("/v1/snapshot", Responders(get=_reply(admin.snapshot)), {
            "GET": Operation(USE, query=wire.ViewQuery, reply=wire.ViewSnapshot,
                             summary="List a view's rows, with the view's version (`watermark`)"),
        }),
        Route("/v1/live", Responders(get=reply_with_events(partial(_stream_view, courier))), {
            "GET": Operation(USE, query=wire.LiveQuery, media="text/event-stream",
                             summary="Stream a view's changes as server-sent events"),
        }),
        Route("/v1/advertise", RegistrationResource(courier, auth), {
            "GET": Operation(USE, summary="Registration data for a Hostess, kernel or Router"),
        }),
    ]  # fmt: skip


def _admin_routes(admin: CourierAdmin) -> list[Route]:
    return [
        Route("/v1/streams/pause", Responders(post=_reply(admin.pause)), {
            "POST": Operation(USE, body=wire.Pause, reply=wire.Paused,
                              summary="Pause deliveries from a stream, with or without an end",
                              audited=True),
        }),
        Route("/v1/streams/resume", Responders(post=_reply(admin.resume)), {
            "POST": Operation(USE, body=wire.Resume, reply=wire.Paused,
                              summary="Resume deliveries from a stream", audited=True),
        }),
        Route("/v1/streams/redrive", Responders(post=_reply(admin.redrive)), {
            "POST": Operation(USE, body=wire.Selection, reply=wire.SelectionResult,
                              summary="Redrive dead letters: make them ready again", audited=True),
        }),
        Route("/v1/streams/purge", Responders(post=_reply(admin.purge)), {
            "POST": Operation(USE, body=wire.Selection, reply=wire.SelectionResult,
                              summary="Purge envelopes: remove them permanently", audited=True),
        }),
        Route("/v1/rules", Responders(get=_reply(admin.rules)), {
            "GET": Operation(USE, summary="List triggers, and how often each fired"),
        }),
    ]  # fmt: skip
