"""Serves the worker bus over HTTP, for programs without access to the file, such as containers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import falcon

from appliance.bus import wire
from appliance.bus.service import Bus, as_agent, check_agent
from appliance.bus.sse import event_stream
from appliance.busfile.claims import BusClaim, ClaimHeld, ClaimLost
from appliance.busfile.messages import MessageIdReused, Published
from appliance.busfile.retention import AgentLags
from appliance.busfile.reviews import OwnReview
from appliance.busfile.search import SearchUnavailable
from appliance.busfile.workers import InvalidTransition, StaleState, UnknownTask, WorkerStatus
from appliance.kernel.auth import TokenBook
from appliance.kernel.errors import CursorBeyondEnd
from appliance.kernel.route import Operation, Route
from appliance.web.media import reply
from appliance.web.responders import (
    Responder,
    Responders,
    reply_to_caller,
    reply_with,
    reply_with_events,
)


def _reply_to_repeatable(change: Callable[..., Any]) -> Responder:
    """Reply with `change`'s result for the body and the Idempotency-Key."""

    def respond(req: Any, resp: falcon.Response, command: Any) -> None:
        made = change(check_agent(req.context.principal, command), req.context.idempotency_key)
        reply(resp, made, 200 if getattr(made, "duplicate", False) else 201)

    return respond


def routes(bus: Bus, book: TokenBook) -> list[Route]:
    return [*_message_routes(bus, book), *_claim_routes(bus), *_worker_routes(bus)]


def _message_routes(bus: Bus, book: TokenBook) -> list[Route]:
    return [
        Route("/bus/v1/messages", Responders(
            get=reply_with(bus.poll), post=_reply_to_repeatable(bus.publish),
        ), {
            "GET": Operation(wire.READ, query=wire.BusPollQuery, reply=wire.BusMessages,
                             errors=(wire.TooManyBusWaits, CursorBeyondEnd),
                             summary="List the next messages for an agent, or wait for one",
                             bounded="wait"),
            "POST": Operation(wire.WRITE, body=wire.PublishBusMessage, reply=Published, status=201,
                              repeat_status=200, keyed=True,
                              errors=(MessageIdReused, AgentLags),
                              example={"from_agent": "ada", "type": "task_progress",
                                       "correlation_id": "task-7", "payload": {"progress": 0.5}},
                              summary="Publish a message to an agent or to all"),
        }),
        Route("/bus/v1/stream", Responders(
            get=reply_with_events(partial(event_stream, bus, book)),
        ), {
            "GET": Operation(wire.READ, query=wire.BusStreamQuery, media="text/event-stream",
                             errors=(wire.TooManyBusStreams, CursorBeyondEnd),
                             summary="Stream messages as server-sent events", bounded="use"),
        }),
        Route("/bus/v1/search", Responders(get=reply_with(bus.search)), {
            "GET": Operation(wire.READ, query=wire.BusSearchQuery, reply=wire.BusMessages,
                             errors=(SearchUnavailable,),
                             summary="Find messages by their words, newest first"),
        }),
        Route("/bus/v1/acks", Responders(post=reply_to_caller(as_agent(bus.ack))), {
            "POST": Operation(wire.WRITE, body=wire.BusAck, reply=wire.BusCursor,
                              example={"agent": "ada", "seq": 41},
                              summary="Ack all messages up to a number"),
        }),
    ]  # fmt: skip


def _claim_routes(bus: Bus) -> list[Route]:
    return [
        Route("/bus/v1/claims", Responders(
            get=reply_with(bus.claims), post=_reply_to_repeatable(bus.claim),
        ), {
            "GET": Operation(wire.READ, reply=wire.Claims, summary="List the valid claims"),
            "POST": Operation(wire.WRITE, body=wire.ClaimTask, reply=BusClaim, status=201,
                              keyed=True, errors=(ClaimHeld, wire.TooManyBusWaits),
                              example={"task": "task-7", "agent": "ada"},
                              summary="Claim a task, a path or a slot, or wait for it",
                              bounded="use"),
        }),
        Route("/bus/v1/claims/renew", Responders(post=reply_to_caller(as_agent(bus.renew))), {
            "POST": Operation(wire.WRITE, body=wire.RenewClaim, reply=BusClaim,
                              errors=(ClaimLost,),
                              example={"task": "task-7", "agent": "ada", "fence": 1},
                              summary="Renew a claim's lease"),
        }),
        Route("/bus/v1/claims/release", Responders(post=reply_to_caller(as_agent(bus.release))), {
            "POST": Operation(wire.WRITE, body=wire.ReleaseClaim, reply=wire.Released,
                              errors=(ClaimLost,),
                              example={"task": "task-7", "agent": "ada", "fence": 1},
                              summary="Release a claim"),
        }),
    ]  # fmt: skip


def _worker_routes(bus: Bus) -> list[Route]:
    return [
        Route("/bus/v1/heartbeats", Responders(post=reply_to_caller(as_agent(bus.beat))), {
            "POST": Operation(wire.WRITE, body=wire.Beat, reply=wire.Beaten,
                              example={"agent": "ada", "status": "working", "task": "task-7"},
                              summary="Report that an agent is alive, with its activity"),
        }),
        Route("/bus/v1/workers", Responders(get=reply_with(bus.workers)), {
            "GET": Operation(wire.READ, query=wire.WorkersQuery, reply=wire.Workers,
                             summary="List workers with their states and heartbeats"),
        }),
        Route("/bus/v1/workers/{task}", Responders(get=reply_with(bus.worker)), {
            "GET": Operation(wire.READ, reply=WorkerStatus, errors=(UnknownTask,),
                             summary="Show a worker"),
        }),
        Route("/bus/v1/workers/{task}/state", Responders(post=reply_to_caller(bus.change_state)), {
            "POST": Operation(wire.WRITE, body=wire.ChangeState, reply=WorkerStatus,
                              errors=(UnknownTask, StaleState, InvalidTransition, OwnReview),
                              example={"from": "WORKING", "to": "FAILED", "actor": "ada"},
                              summary="Change a worker's state, if nobody changed it meanwhile"),
        }),
    ]  # fmt: skip
