"""The courier on HTTP: one class a noun, and the table of its routes."""

from functools import partial
from typing import Any

import falcon

from appliance.courier import wire
from appliance.courier.access import USE
from appliance.courier.advert import registration
from appliance.courier.live import Live, LiveStream
from appliance.courier.operator import Operator
from appliance.courier.service import Courier, delivery
from appliance.kernel.route import Operation, Route
from appliance.web.caller import is_there
from appliance.web.media import reply, reply_bytes


class Envelopes:
    def __init__(self, courier: Courier, operator: Operator) -> None:
        self._courier = courier
        self._operator = operator

    def on_post(self, req: Any, resp: falcon.Response, command: wire.Enqueue) -> None:
        who = req.context.principal
        reply(resp, self._courier.enqueue(who, command.to, command.envelope))

    def on_post_batch(self, req: Any, resp: falcon.Response, command: wire.EnqueueBatch) -> None:
        who = req.context.principal
        reply(resp, self._courier.enqueue_batch(who, command.to, command.envelopes))

    def on_get_item(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._operator.one(req.context.principal, req.context.query))

    def on_get_peek(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._operator.peek(req.context.principal, req.context.query))


class Deliveries:
    """Receiving without a socket."""

    def __init__(self, courier: Courier) -> None:
        self._courier = courier

    def on_post(self, req: Any, resp: falcon.Response, command: wire.Receive) -> None:
        taker, items = self._courier.receive(
            req.context.principal, command, partial(is_there, req.env)
        )
        reply(
            resp,
            wire.Received(taker.id, [delivery(item) for item in items], self._courier.boot_id),
        )

    def on_post_ack(self, req: Any, resp: falcon.Response, command: wire.Ack) -> None:
        taker = self._courier.receiver(req.context.principal, command.receiver)
        self._tell(resp, taker, command.ids, self._courier.ack(taker, command.ids))

    def on_post_nack(self, req: Any, resp: falcon.Response, command: wire.Nack) -> None:
        taker = self._courier.receiver(req.context.principal, command.receiver)
        lost = self._courier.nack(taker, command.ids, command.mode, command.delay_ms, command.error)
        self._tell(resp, taker, command.ids, lost)

    def on_post_extend(self, req: Any, resp: falcon.Response, command: wire.Extend) -> None:
        taker = self._courier.receiver(req.context.principal, command.receiver)
        lost = self._courier.extend(taker, command.ids, command.lease_ms)
        self._tell(resp, taker, command.ids, lost)

    def _tell(self, resp: falcon.Response, taker: Any, ids: list[str], lost: list[str]) -> None:
        self._courier.forget_receiver(taker)
        if len(lost) == len(ids):
            raise wire.NotHeld(details={"ids": lost[:100]})
        gone = set(lost)
        done = [id_ for id_ in ids if id_ not in gone]
        reply(resp, wire.Settled(done, lost, self._courier.boot_id))


class Stats:
    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        who, stream = req.context.principal, req.context.query.stream
        if stream is None:
            reply(resp, self._operator.all_stats(who))
        else:
            reply(resp, self._operator.stats(who, stream))


class Streams:
    """What operators do to them."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def on_post_pause(self, req: Any, resp: falcon.Response, command: wire.Pause) -> None:
        reply(resp, self._operator.pause(req.context.principal, command))

    def on_post_resume(self, req: Any, resp: falcon.Response, command: wire.Resume) -> None:
        reply(resp, self._operator.resume(req.context.principal, command))

    def on_post_redrive(self, req: Any, resp: falcon.Response, command: wire.Selection) -> None:
        reply(resp, self._operator.redrive(req.context.principal, command))

    def on_post_purge(self, req: Any, resp: falcon.Response, command: wire.Selection) -> None:
        reply(resp, self._operator.purge(req.context.principal, command))


class Figures:
    """`/v1/metrics`: JSON by stream, or Prometheus text for whoever asks for text."""

    def __init__(self, operator: Operator, exposition: Any) -> None:
        self._operator = operator
        self._exposition = exposition

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        accepted = req.env.get("HTTP_ACCEPT", "")
        if "text/plain" in accepted or "openmetrics" in accepted:
            reply_bytes(resp, self._exposition(), media="text/plain; version=0.0.4; charset=utf-8")
        else:
            reply(resp, self._operator.all_stats(req.context.principal))


class Views:
    def __init__(self, courier: Courier, operator: Operator) -> None:
        self._courier = courier
        self._operator = operator

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._operator.snapshot(req.context.principal, req.context.query))

    def on_get_live(self, req: Any, resp: falcon.Response) -> None:
        live = Live(self._courier, req.context.principal, req.context.query)
        resp.content_type = "text/event-stream"
        resp.set_header("X-Accel-Buffering", "no")
        resp.stream = LiveStream(live)


class Rules:
    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, {"rules": self._operator.rules(req.context.principal)})

    def on_post_dry_run(self, req: Any, resp: falcon.Response, command: wire.DryRun) -> None:
        verdicts = self._operator.dry_run(req.context.principal, command)
        reply(resp, {"rules": verdicts, "fires": [one.rule for one in verdicts if one.fires]})


class Advert:
    def __init__(self, courier: Courier, auth: str) -> None:
        self._courier = courier
        self._auth = auth

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        host, port = req.env.get("SERVER_NAME", ""), req.env.get("SERVER_PORT", "0")
        streams = len(self._courier.queue.rings)
        number = int(port) if str(port).isdecimal() else 0
        reply(resp, registration(host, number, self._courier.boot_id, self._auth, streams))


def routes(courier: Courier, operator: Operator, exposition: Any, auth: str) -> list[Route]:
    """`exposition` makes the Prometheus text; `auth` is yes or optional, for the advert."""
    envelopes = Envelopes(courier, operator)
    return [
        *_moving(courier, envelopes),
        *_looking(courier, operator, envelopes, exposition, auth),
        *_mending(operator),
    ]


def _moving(courier: Courier, envelopes: Envelopes) -> list[Route]:
    deliveries = Deliveries(courier)
    return [
        Route("/v1/enqueue", envelopes, {
            "POST": Operation(USE, body=wire.Enqueue, reply=wire.Enqueued,
                              summary="Put an envelope into a stream"),
        }),
        Route("/v1/enqueue/batch", envelopes, {
            "POST": Operation(USE, body=wire.EnqueueBatch, reply=wire.EnqueuedBatch, batch=True,
                              cost=lambda command: len(command.envelopes),
                              summary="Put up to 1,000 envelopes into a stream"),
        }, suffix="batch"),
        Route("/v1/receive", deliveries, {
            "POST": Operation(USE, body=wire.Receive, reply=wire.Received,
                              summary="Lease envelopes; wait for the first if asked to"),
        }),
        Route("/v1/ack", deliveries, {
            "POST": Operation(USE, body=wire.Ack, reply=wire.Settled,
                              summary="These envelopes are done"),
        }, suffix="ack"),
        Route("/v1/nack", deliveries, {
            "POST": Operation(USE, body=wire.Nack, reply=wire.Settled,
                              summary="These are not: release, fail or reject them"),
        }, suffix="nack"),
        Route("/v1/extend", deliveries, {
            "POST": Operation(USE, body=wire.Extend, reply=wire.Settled,
                              summary="Hold these leases longer"),
        }, suffix="extend"),
    ]  # fmt: skip


def _looking(
    courier: Courier, operator: Operator, envelopes: Envelopes, exposition: Any, auth: str
) -> list[Route]:
    views = Views(courier, operator)
    return [
        Route("/v1/envelope", envelopes, {
            "GET": Operation(USE, query=wire.OneQuery, reply=wire.Kept,
                             summary="One envelope of a stream, and where it stands"),
        }, suffix="item"),
        Route("/v1/peek", envelopes, {
            "GET": Operation(USE, query=wire.PeekQuery, reply=wire.Listing,
                             summary="Envelopes of a stream, without taking them"),
        }, suffix="peek"),
        Route("/v1/stats", Stats(operator), {
            "GET": Operation(USE, query=wire.StatsQuery,
                             summary="Figures of one stream, or of all"),
        }),
        Route("/v1/metrics", Figures(operator, exposition), {
            "GET": Operation(USE, summary="Figures of all streams; Prometheus text by Accept"),
        }),
        Route("/v1/snapshot", views, {
            "GET": Operation(USE, query=wire.ViewQuery, reply=wire.Snapshot,
                             summary="The rows of a view and its watermark"),
        }),
        Route("/v1/live", views, {
            "GET": Operation(USE, query=wire.LiveQuery, media="text/event-stream",
                             summary="Changes of a view as server-sent events"),
        }, suffix="live"),
        Route("/v1/advertise", Advert(courier, auth), {
            "GET": Operation(USE, summary="What a Hostess, a kernel or a Router registers"),
        }),
    ]  # fmt: skip


def _mending(operator: Operator) -> list[Route]:
    streams, rules = Streams(operator), Rules(operator)
    return [
        Route("/v1/streams/pause", streams, {
            "POST": Operation(USE, body=wire.Pause, reply=wire.Paused,
                              summary="No more deliveries from a stream, for now or for a time"),
        }, suffix="pause"),
        Route("/v1/streams/resume", streams, {
            "POST": Operation(USE, body=wire.Resume, reply=wire.Paused,
                              summary="Deliver again"),
        }, suffix="resume"),
        Route("/v1/streams/redrive", streams, {
            "POST": Operation(USE, body=wire.Selection, reply=wire.Changed,
                              summary="Give dead letters a new life"),
        }, suffix="redrive"),
        Route("/v1/streams/purge", streams, {
            "POST": Operation(USE, body=wire.Selection, reply=wire.Changed,
                              summary="Remove envelopes for good"),
        }, suffix="purge"),
        Route("/v1/rules", rules, {
            "GET": Operation(USE, summary="The triggers, and how often each fired"),
        }),
        Route("/v1/rules/dry-run", rules, {
            "POST": Operation(USE, body=wire.DryRun,
                              summary="Which triggers an envelope would fire"),
        }, suffix="dry_run"),
    ]  # fmt: skip
