"""Subscriptions: matching events against channels and topics.

A subscription is an OR (hub spec §2.3): the event's channel, or its topic, or the second
topic of a move. A missing subscription selects everything; an empty one selects nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from appliance.hub.events import CommittedEvent

NAMING_EVENTS = ("channel.created", "topic.created", "topic.renamed")


class Filter(msgspec.Struct, frozen=True):
    """Channel and topic ids; `unresolved`: names that don't exist yet."""

    channels: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    unresolved: frozenset[str] = frozenset()

    def matches(self, event: CommittedEvent) -> bool:
        return (
            event.channel_id in self.channels
            or event.topic_id in self.topics
            or event.topic_id2 in self.topics
        )

    @property
    def terms(self) -> list[tuple[str, str]]:
        """Return (scope column, id) pairs in a fixed order; an event matches if one of them
        does."""
        topics = sorted(self.topics)
        return (
            [("scope_channel_id", channel) for channel in sorted(self.channels)]
            + [("scope_topic_id", topic) for topic in topics]
            + [("scope_topic_id2", topic) for topic in topics]
        )


class LiveFilter:
    """A listener's filter, including channels that are named but do not exist yet.

    The order matters: let the feed queue the items that `wants` accepts, call `resolve`, then read
    the log. Call `refresh` before each log piece, when its end is known. Pass everything that comes
    from the queue through `filter`.
    """

    __slots__ = ("_lookup", "by_name", "current")

    def __init__(self, names: frozenset[str], lookup: Callable[[], Filter]) -> None:
        """Take the wanted names. `names` may also be ids; `lookup` finds all of them in the
        database."""
        self._lookup = lookup
        self.by_name = False  # some name did not exist when first resolved
        self.current = Filter(unresolved=names)

    def wants(self, event: CommittedEvent) -> bool:
        """Return True for every event while a name is unresolved; `filter` decides then."""
        current = self.current
        return (
            event.channel_id in current.channels
            or event.topic_id in current.topics
            or event.topic_id2 in current.topics
            or bool(current.unresolved)
        )

    def resolve(self) -> None:
        self.current = self._lookup()
        self.by_name = bool(self.current.unresolved)

    def refresh(self) -> None:
        """Resolve names again: the event for a channel created by now may already have passed."""
        if self.current.unresolved:
            self.current = self._lookup()

    def filter(self, items: Sequence[Any]) -> Sequence[Any]:
        """Return the wanted items. Items queued before the last name was resolved are not
        filtered yet."""
        return [item for item in items if self._matches(item)] if self.by_name else items

    def _matches(self, event: CommittedEvent) -> bool:
        if self.current.unresolved and event.name in NAMING_EVENTS:
            self.current = self._lookup()
        return self.current.matches(event)
