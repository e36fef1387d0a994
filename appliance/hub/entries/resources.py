"""Serves inboxes and receipts over HTTP."""

from functools import partial

from appliance.hub.access import POST, READ
from appliance.hub.entries import wire
from appliance.hub.entries.service import Entries
from appliance.hub.entries.sse import entry_stream
from appliance.kernel.route import Operation, Route
from appliance.web.responders import (
    Responders,
    reply_to_caller,
    reply_to_change,
    reply_with_events,
)

EXAMPLE = {"ids": [12, 13]}
DECLINED = {"id": 12, "reason": "not my service"}


def routes(entries: Entries) -> list[Route]:
    return [
        Route("/api/v1/inbox", Responders(get=reply_to_caller(entries.list_entries)), {
            "GET": Operation(READ, reply=wire.EntryPage, query=wire.EntriesQuery, by_channel=True,
                             summary="List entries that wait, oldest first, optionally waiting",
                             bounded="wait"),
        }),
        Route("/api/v1/inbox/stream", Responders(
            get=reply_with_events(partial(entry_stream, entries)),
        ), {
            "GET": Operation(READ, query=wire.EntryStreamQuery, media="text/event-stream",
                             summary="Stream entries as server-sent events", by_channel=True,
                             bounded="use"),
        }),
        Route("/api/v1/inbox/acknowledge", Responders(
            post=reply_to_change(entries.acknowledge),
        ), {
            "POST": Operation(POST, keyed=True, body=wire.Acknowledge, reply=wire.Settled,
                              errors=(wire.NoSuchEntry, wire.EntrySettled, wire.NotListed),
                              by_channel=True, example=EXAMPLE,
                              summary="Acknowledge entries by id, or a range by both ends"),
        }),
        Route("/api/v1/inbox/decline", Responders(post=reply_to_change(entries.decline)), {
            "POST": Operation(POST, keyed=True, body=wire.Decline, reply=wire.Settled,
                              errors=(wire.NoSuchEntry, wire.EntrySettled), by_channel=True,
                              example=DECLINED, summary="Decline an entry, with a reason"),
        }),
        Route("/api/v1/inbox/follows", Responders(get=reply_to_caller(entries.follows)), {
            "GET": Operation(READ, reply=wire.FollowList, query=wire.FollowsQuery,
                             by_channel=True, summary="List the topics that a name follows"),
        }),
        Route("/api/v1/topics/{topic_id}/follow", Responders(
            post=reply_to_change(entries.follow),
        ), {
            "POST": Operation(POST, keyed=True, body=wire.FollowTopic, reply=wire.Followed,
                              status=201, repeat_status=200, by_channel=True,
                              errors=(wire.TooManyFollows,),
                              summary="Follow a topic: each later message becomes an entry"),
        }),
        Route("/api/v1/topics/{topic_id}/unfollow", Responders(
            post=reply_to_change(entries.unfollow),
        ), {
            "POST": Operation(POST, keyed=True, body=wire.FollowTopic, reply=wire.Followed,
                              by_channel=True, summary="Stop following a topic"),
        }),
        Route("/api/v1/messages/{message_id}/receipts", Responders(
            get=reply_to_caller(entries.receipts),
        ), {
            "GET": Operation(READ, reply=wire.ReceiptList, by_channel=True,
                             summary="Show what became of a message, recipient by recipient"),
        }),
    ]  # fmt: skip
