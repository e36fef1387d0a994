"""What a session listens to: pure matching of events against channels and topics.

A subscription is an OR (hub spec §2.3): the event's channel, or its topic, or the second
topic of a move. Left out altogether it means everything; present and empty, nothing.
"""

from typing import Protocol


class Scoped(Protocol):
    """The part of an event that decides who hears it."""

    @property
    def channel_id(self) -> str | None: ...
    @property
    def topic_id(self) -> str | None: ...
    @property
    def topic_id2(self) -> str | None: ...


class Filter:
    """Ids of channels and topics; `unresolved` are names of channels not made yet."""

    __slots__ = ("channels", "topics", "unresolved")

    def __init__(
        self,
        channels: frozenset[str] = frozenset(),
        topics: frozenset[str] = frozenset(),
        unresolved: frozenset[str] = frozenset(),
    ) -> None:
        self.channels = channels
        self.topics = topics
        self.unresolved = unresolved

    def matches(self, event: Scoped) -> bool:
        return (
            event.channel_id in self.channels
            or event.topic_id in self.topics
            or event.topic_id2 in self.topics
        )

    @property
    def terms(self) -> list[tuple[str, str]]:
        """(scope column, id) pairs of which one must hold, in a fixed order."""
        topics = sorted(self.topics)
        return (
            [("scope_channel_id", channel) for channel in sorted(self.channels)]
            + [("scope_topic_id", topic) for topic in topics]
            + [("scope_topic_id2", topic) for topic in topics]
        )
