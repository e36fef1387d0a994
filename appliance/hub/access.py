"""Callers whose token is limited to channels: what they may touch.

A topic never leaves its channel and neither does a message, so who looks before the change
looks in time. Nobody else pays for it: a principal without limits has `channels` None.
"""

from collections.abc import Sequence

from appliance.hub import queries, wire
from appliance.hub.subscription import Filter
from appliance.kernel.auth import Principal
from appliance.kernel.errors import Forbidden
from appliance.kernel.store import Store

READ, POST = wire.READ, wire.POST
KNOWN_MAX = 10_000


class OtherChannel(Forbidden):
    sentence = "this token may not do that in this channel"
    advice = "agentlip token list shows the channels it is limited to"


class Access:
    """Asks the database where things are; remembers topics, for those stay where they are."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._channel_of: dict[str, str] = {}

    def whole(self, principal: Principal, scope: str) -> None:
        """Pass only who isn't limited: for what is no single channel's business."""
        if principal.channels_for(scope) is not None:
            raise OtherChannel(details={"scope": scope})

    def channel(self, principal: Principal, scope: str, channel_id: str) -> None:
        only = principal.channels_for(scope)
        if only is not None and channel_id not in only:
            raise OtherChannel(details={"scope": scope})

    def topic(self, principal: Principal, scope: str, topic_id: str) -> None:
        """What doesn't exist passes, and is answered as it is for everybody."""
        if principal.channels_for(scope) is not None:
            channel_id = self._topics([topic_id]).get(topic_id)
            if channel_id is not None:
                self.channel(principal, scope, channel_id)

    def message(self, principal: Principal, scope: str, message_id: str) -> None:
        if principal.channels_for(scope) is not None:
            channel_id = self._store.read(queries.channel_of_message, message_id)
            if channel_id is not None:
                self.channel(principal, scope, channel_id)

    def all_events(self, principal: Principal) -> Filter | None:
        """The filter of who asks for everything."""
        only = principal.channels_for(READ)
        return None if only is None else Filter(only)

    def narrow(self, wanted: Filter, principal: Principal) -> Filter:
        """The part of `wanted` that this caller may hear. What isn't there yet is left out:
        a limit names channels by ids, and those of the future have none."""
        only = principal.channels_for(READ)
        if only is None:
            return wanted
        found = self._topics(sorted(wanted.topics))
        topics = frozenset(topic for topic, channel in found.items() if channel in only)
        return Filter(wanted.channels & only, topics)

    def _topics(self, topic_ids: Sequence[str]) -> dict[str, str]:
        """topic → channel, of those that exist."""
        unknown = [topic_id for topic_id in topic_ids if topic_id not in self._channel_of]
        if unknown:
            if len(self._channel_of) > KNOWN_MAX:
                self._channel_of.clear()
            self._channel_of.update(self._store.read(queries.channels_of_topics, unknown))
        known = self._channel_of
        return {topic_id: known[topic_id] for topic_id in topic_ids if topic_id in known}
