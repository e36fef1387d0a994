"""Access checks for tokens that are limited to channels.

Topics and messages never leave their channel, so a check before the transaction is enough.
Unlimited principals skip the checks: they have no `channels`.
"""

from collections.abc import Sequence

from appliance.hub import queries, wire
from appliance.hub.subscription import Filter
from appliance.kernel.auth import Principal
from appliance.kernel.errors import Forbidden
from appliance.kernel.store import Store

READ, POST = wire.READ, wire.POST
TOPICS_REMEMBERED_MAX = 10_000


class OtherChannel(Forbidden):
    default_message = "this token has no access to this channel for that operation"
    default_hint = "agentlip token list shows the channels it is limited to"


class Access:
    """Looks up the channel of topics and messages; caches topics, which never change channel."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._channel_of: dict[str, str] = {}

    def require_unlimited(self, principal: Principal, scope: str) -> None:
        """Raises OtherChannel for limited tokens; for operations that concern no single channel."""
        if principal.channels_for(scope) is not None:
            raise OtherChannel(details={"scope": scope})

    def check_channel(self, principal: Principal, scope: str, channel_id: str) -> None:
        only = principal.channels_for(scope)
        if only is not None and channel_id not in only:
            raise OtherChannel(details={"scope": scope})

    def check_topic(self, principal: Principal, scope: str, topic_id: str) -> None:
        """Missing topics pass: the operation itself reports them, as for every caller."""
        if principal.channels_for(scope) is not None:
            channel_id = self._channels_of([topic_id]).get(topic_id)
            if channel_id is not None:
                self.check_channel(principal, scope, channel_id)

    def check_message(self, principal: Principal, scope: str, message_id: str) -> None:
        if principal.channels_for(scope) is not None:
            channel_id = self._store.read(queries.channel_of_message, message_id)
            if channel_id is not None:
                self.check_channel(principal, scope, channel_id)

    def all_events(self, principal: Principal) -> Filter | None:
        """The filter for a caller that subscribes to everything."""
        only = principal.channels_for(READ)
        return None if only is None else Filter(only)

    def narrow(self, wanted: Filter, principal: Principal) -> Filter:
        """The part of `wanted` that this caller may read. Channels that don't exist yet are left
        out, because tokens are limited to channel ids."""
        only = principal.channels_for(READ)
        if only is None:
            return wanted
        channel_of = self._channels_of(sorted(wanted.topics))
        topics = frozenset(topic for topic, channel in channel_of.items() if channel in only)
        return Filter(wanted.channels & only, topics)

    def _channels_of(self, topic_ids: Sequence[str]) -> dict[str, str]:
        """Topic id → channel id, for the topics that exist."""
        unknown = [topic_id for topic_id in topic_ids if topic_id not in self._channel_of]
        if unknown:
            if len(self._channel_of) > TOPICS_REMEMBERED_MAX:
                self._channel_of.clear()
            self._channel_of.update(self._store.read(queries.channels_of_topics, unknown))
        channel_of = self._channel_of
        return {topic_id: channel_of[topic_id] for topic_id in topic_ids if topic_id in channel_of}
