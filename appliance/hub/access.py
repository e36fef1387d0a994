"""References to channels and topics, and access checks for tokens limited to channels.

Topics and messages never leave their channel, so a check before the transaction is enough.
Unlimited principals skip the checks: they have no `channels`.
"""

import re

from appliance.hub import queries, wire
from appliance.hub.subscription import Filter
from appliance.kernel.auth import Principal
from appliance.kernel.errors import Forbidden, Invalid
from appliance.kernel.store import Store

READ, POST = wire.READ, wire.POST


_is_id = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch


class OtherChannel(Forbidden):
    default_message = "this token has no access to this channel for that operation"
    default_hint = "agentlip token list shows the channels it is limited to"


class Access:
    """Finds channels and topics by id or name."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def require_unlimited(self, principal: Principal, scope: str) -> None:
        """Raise OtherChannel for limited tokens; for operations that concern no single channel."""
        if principal.channels_for(scope) is not None:
            raise OtherChannel(details={"scope": scope})

    def find_channel(self, principal: Principal, scope: str, reference: str) -> str:
        """Return a channel's id, by id or name. Raises NoSuchChannel, or OtherChannel for a
        limited token, which can't detect other channels."""
        channel_id = self._store.read(queries.channel_ids, [reference]).get(reference)
        self._check(principal, scope, channel_id)
        if channel_id is None:
            raise wire.NoSuchChannel(details={"channel_id": reference})
        return channel_id

    def find_topic(self, principal: Principal, scope: str, reference: str) -> str:
        """Return a topic's id, by id or CHANNEL/TITLE. Raises NoSuchTopic, OtherChannel for a
        limited token, or Invalid. Unknown ids pass: the operation itself reports them."""
        if "/" in reference:
            topic = self._store.read(queries.topics_named, [reference]).get(reference)
            self._check(principal, scope, topic and topic[1])
            if topic is None:
                raise wire.NoSuchTopic(details={"topic_id": reference})
            return topic[0]
        if not _is_id(reference):
            raise Invalid(
                "topic_id is neither an id nor CHANNEL/TITLE",
                details={"field": "topic_id"},
                hint="write a topic as its id, or as CHANNEL/TITLE, for example general/hello",
            )
        if principal.channels_for(scope) is not None:
            channel_id = self._store.read(queries.channels_of_topics, [reference]).get(reference)
            if channel_id is not None:
                self._check(principal, scope, channel_id)
        return reference

    def check_message(self, principal: Principal, scope: str, message_id: str) -> None:
        if principal.channels_for(scope) is not None:
            channel_id, _ = self._store.read(queries.place_of_message, message_id)
            if channel_id is not None:
                self._check(principal, scope, channel_id)

    def narrow(self, wanted: Filter, principal: Principal) -> Filter:
        """Return the part of `wanted` that this caller may read. Channels that don't exist yet
        are left out, because tokens are limited to channel ids."""
        only = principal.channels_for(READ)
        if only is None:
            return wanted
        channel_of = self._store.read(queries.channels_of_topics, sorted(wanted.topics))
        topics = frozenset(topic for topic, channel in channel_of.items() if channel in only)
        return Filter(wanted.channels & only, topics)

    def _check(self, principal: Principal, scope: str, channel_id: str | None) -> None:
        only = principal.channels_for(scope)
        if only is not None and channel_id not in only:
            raise OtherChannel(details={"scope": scope})
