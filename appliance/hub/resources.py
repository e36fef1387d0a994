"""Serves the hub over HTTP: one class for each noun, and the route table (hub spec §0.9)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import falcon

from appliance.hub import wire
from appliance.hub.access import POST, READ
from appliance.hub.recipients import MessageCreated
from appliance.hub.service import Hub, batch_body
from appliance.hub.sse import event_stream
from appliance.kernel.errors import CursorBeyondEnd
from appliance.kernel.idempotency import Reply
from appliance.kernel.pauses import Paused
from appliance.kernel.route import OPEN, Operation, Route
from appliance.web.media import encode, reply_bytes
from appliance.web.responders import (
    Responder,
    Responders,
    Verb,
    arguments_of,
    reply_to_caller,
    reply_to_change,
    reply_with,
    reply_with_events,
)


class MessageBatchResource:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def on_post(self, req: Any, resp: falcon.Response, command: wire.CreateMessages) -> None:
        """Post messages. A key in the header, with the index appended, applies to items without a
        key.

        An invalid item becomes its error.
        """
        key, messages = req.context.idempotency_key, command.messages
        keys = [getattr(message, "idempotency_key", None) for message in messages]
        if key is not None:
            keys = [own or f"{key}/{index}" for index, own in enumerate(keys)]
        results = self._hub.create_messages(messages, req.context.principal, keys)
        reply_bytes(resp, batch_body(results))
        if key is not None and all(
            isinstance(result, Reply) and result.replayed for result in results
        ):
            resp.set_header("Idempotency-Replayed", "true")


def reply_from_cache(hub: Hub, verb: Verb) -> Responder:
    """Reply with what the verb returns. Callers that may read the same channels share results."""

    def respond(req: Any, resp: falcon.Response, **fields: Any) -> None:
        principal = req.context.principal
        arguments = arguments_of(req, fields)
        key = (verb.__name__, *arguments, principal.channels_for(READ))
        resp.data = hub.store.read_cached(key, lambda: encode(verb(*arguments, principal)))

    return respond


def health_route(health: Callable[[], wire.Health]) -> Route:
    operation = Operation(
        OPEN, reply=wire.Health, probe=True, summary="Show this hub's identity and version"
    )
    return Route("/health", Responders(get=reply_with(health)), {"GET": operation})


def routes(hub: Hub) -> list[Route]:
    return [
        health_route(hub.health),
        *_topic_routes(hub),
        *_message_routes(hub),
        *_event_routes(hub),
        Route("/api/v1/search", Responders(get=reply_to_caller(hub.search)), {
            "GET": Operation(READ, reply=wire.SearchResult, query=wire.SearchQuery,
                             summary="Search messages for words and phrases, best match first",
                             by_channel=True),
        }),
    ]  # fmt: skip


def _topic_routes(hub: Hub) -> list[Route]:
    return [
        Route("/api/v1/channels", Responders(
            get=reply_from_cache(hub, hub.list_channels), post=reply_to_change(hub.create_channel),
        ), {
            "GET": Operation(READ, reply=wire.ChannelList, query=wire.ChannelsQuery,
                             summary="List channels by name", by_channel=True),
            "POST": Operation(POST, keyed=True, body=wire.CreateChannel, reply=wire.ChannelCreated,
                              status=201, summary="Create a channel", by_channel=True),
        }),
        Route("/api/v1/channels/{channel_id}/topics", Responders(
            get=reply_from_cache(hub, hub.list_topics),
        ), {
            "GET": Operation(READ, reply=wire.TopicList, query=wire.TopicsQuery,
                             summary="List a channel's topics, newest activity first",
                             by_channel=True),
        }),
        Route("/api/v1/topics", Responders(
            get=reply_to_caller(hub.list_all_topics), post=reply_to_change(hub.create_topic),
        ), {
            "GET": Operation(READ, reply=wire.TopicList, query=wire.TopicsQuery, by_channel=True,
                             summary="List all channels' topics, newest activity first"),
            "POST": Operation(POST, keyed=True, body=wire.CreateTopic, reply=wire.TopicChanged,
                              status=201, summary="Create a topic", by_channel=True),
        }),
        Route("/api/v1/topics/{topic_id}", Responders(patch=reply_to_change(hub.rename_topic)), {
            "PATCH": Operation(POST, keyed=True, body=wire.RenameTopic, reply=wire.TopicChanged,
                               summary="Rename a topic", by_channel=True),
        }),
        Route("/api/v1/topics/{topic_id}/attachments", Responders(
            get=reply_from_cache(hub, hub.list_attachments),
            post=reply_to_change(hub.add_attachment),
        ), {
            "GET": Operation(READ, reply=wire.AttachmentList, query=wire.AttachmentsQuery,
                             summary="List a topic's attachments, newest first", by_channel=True),
            "POST": Operation(POST, keyed=True, body=wire.AddAttachment, reply=wire.AttachmentAdded,
                              status=201, repeat_status=200, by_channel=True,
                              summary="Add an attachment to a topic; equal ones are stored once"),
        }),
    ]  # fmt: skip


def _message_routes(hub: Hub) -> list[Route]:
    return [
        Route("/api/v1/messages", Responders(
            get=reply_from_cache(hub, hub.page_messages), post=reply_to_change(hub.create_message),
        ), {
            "GET": Operation(READ, reply=wire.MessageList, query=wire.MessagesQuery,
                             summary="List messages in a topic or channel",
                             by_channel=True),
            "POST": Operation(POST, keyed=True, body=wire.CreateMessage, reply=MessageCreated,
                              status=201, summary="Post a message", by_channel=True,
                              errors=(Paused,)),
        }),
        Route("/api/v1/messages/{message_id}", Responders(
            get=reply_to_caller(hub.get_message), patch=reply_to_change(hub.patch_message),
        ), {
            "GET": Operation(READ, reply=wire.OneMessage, summary="Get one message",
                             by_channel=True),
            "PATCH": Operation(POST, keyed=True, body=wire.PatchMessage,
                               reply=(wire.MessageChanged, wire.Moved),
                               summary="Edit, delete or move a message",
                               by_channel=True),
        }),
        Route("/api/v1/messages/batch", MessageBatchResource(hub), {
            "POST": Operation(POST, keyed=True, body=wire.CreateMessages, reply=wire.BatchResults,
                              batch=True, list_field="messages",
                              cost=lambda command: len(command.messages),
                              summary="Post up to 500 messages", by_channel=True),
        }),
    ]  # fmt: skip


def _event_routes(hub: Hub) -> list[Route]:
    def list_events(req: Any, resp: falcon.Response) -> None:
        query, principal = req.context.query, req.context.principal
        make = partial(hub.list_events, query, principal)
        # A page ends at the newest published event, which follows its commit by a moment.
        key = ("list_events", query, hub.feed.head, principal.channels_for(READ))
        resp.data = make() if query.wait else hub.store.read_cached(key, make)

    return [
        Route("/api/v1/events", Responders(get=list_events), {
            "GET": Operation(READ, reply=wire.EventList, query=wire.EventsQuery,
                             errors=(CursorBeyondEnd,),
                             summary="List events after a cursor, optionally waiting for the next",
                             by_channel=True, bounded="wait"),
        }),
        Route("/api/v1/events/stream", Responders(
            get=reply_with_events(partial(event_stream, hub)),
        ), {
            "GET": Operation(READ, query=wire.StreamQuery, media="text/event-stream",
                             errors=(CursorBeyondEnd,),
                             summary="Stream events as server-sent events", by_channel=True,
                             bounded="use"),
        }),
    ]  # fmt: skip
