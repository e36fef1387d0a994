"""Serves catch-ups, topic states and pins over HTTP."""

from typing import Any

from appliance.hub import wire as hub_wire
from appliance.hub.access import POST, READ
from appliance.hub.catchup import wire
from appliance.hub.catchup.service import CatchUps
from appliance.kernel.errors import CursorBeyondEnd
from appliance.kernel.route import Operation, Route
from appliance.web.responders import Responders, reply_to_caller, reply_to_change

HANDOFF = {"note": "Builds 7 to 9 failed: the cache was full. Open: resize it.",
           "expected_version": 1}  # fmt: skip


def _change(path: str, change: Any, body: type, reply: type, summary: str, **more: Any) -> Route:
    operation = Operation(
        POST, keyed=True, body=body, reply=reply, by_channel=True, summary=summary, **more
    )
    return Route(path, Responders(post=reply_to_change(change)), {"POST": operation})


def routes(catch_ups: CatchUps) -> list[Route]:
    return [
        Route("/api/v1/catch-up", Responders(get=reply_to_caller(catch_ups.catch_up)), {
            "GET": Operation(READ, reply=wire.CatchUp, query=wire.CatchUpQuery, by_channel=True,
                             errors=(CursorBeyondEnd,),
                             summary="Show what waits for a name, within a budget of tokens"),
        }),
        Route("/api/v1/pins", Responders(get=reply_to_caller(catch_ups.pins)), {
            "GET": Operation(READ, reply=wire.PinList, query=wire.PinsQuery, by_channel=True,
                             summary="List pinned messages, the last pinned first"),
        }),
        Route("/api/v1/topics/{topic_id}/state", Responders(
            get=reply_to_caller(catch_ups.topic_state),
        ), {
            "GET": Operation(READ, reply=wire.TopicStateShown, by_channel=True,
                             summary="Show whether a topic is resolved, and its handoff note"),
        }),
        _change("/api/v1/topics/{topic_id}/resolve", catch_ups.resolve, wire.ChangeTopic,
                wire.TopicStateChanged, "Resolve a topic, with a note"),
        _change("/api/v1/topics/{topic_id}/reopen", catch_ups.reopen, wire.ChangeTopic,
                wire.TopicStateChanged, "Reopen a resolved topic, with a note"),
        _change("/api/v1/topics/{topic_id}/handoff", catch_ups.write_handoff, wire.WriteHandoff,
                wire.TopicStateChanged, "Replace a topic's handoff note",
                errors=(hub_wire.VersionConflict,), example=HANDOFF),
        _change("/api/v1/messages/{message_id}/pin", catch_ups.pin, wire.PinMessage,
                wire.PinChanged, "Pin a message", errors=(wire.TooManyPins, wire.PinnedDeleted)),
        _change("/api/v1/messages/{message_id}/unpin", catch_ups.unpin, wire.PinMessage,
                wire.PinChanged, "Unpin a message"),
    ]  # fmt: skip
