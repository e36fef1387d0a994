"""What a session listens to: pure matching of events against channels and topics.

A subscription is an OR (hub spec §2.3): the event's channel, or its topic, or the second
topic of a move. Left out altogether it means everything; present and empty, nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from appliance.hub import wire

_channel_data = msgspec.json.Decoder(wire.ChannelData)


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


class Following:
    """What a listener wants, also by names of channels that are not made yet.

    The order matters: have the feed queue what `wants` lets through, then `look_up`, then
    read the log. Before each piece of the log, when it is known where that ends,
    `look_again`; what the queue gives goes through `sift`.
    """

    __slots__ = ("_resolve", "by_name", "filter")

    def __init__(self, names: frozenset[str], resolve: Callable[[], Filter]) -> None:
        """`names` may be ids as well; `resolve` looks all of them up in the database."""
        self._resolve = resolve
        self.by_name = False  # some name was not known at the first look
        self.filter = Filter(unresolved=names)

    def wants(self, event: Scoped) -> bool:
        """Everything while a name is still unknown: `sift` tells then."""
        wanted = self.filter
        return (
            event.channel_id in wanted.channels
            or event.topic_id in wanted.topics
            or event.topic_id2 in wanted.topics
            or bool(wanted.unresolved)
        )

    def look_up(self) -> None:
        self.filter = self._resolve()
        self.by_name = bool(self.filter.unresolved)

    def look_again(self) -> None:
        """A channel made by now can be found, and may not be told of again."""
        if self.filter.unresolved:
            self.filter = self._resolve()

    def sift(self, items: Sequence[Any]) -> Sequence[Any]:
        """Those wanted; what was queued before the last name was known is unfiltered."""
        return [item for item in items if self._meets(item)] if self.by_name else items

    def _meets(self, event: Any) -> bool:
        wanted = self.filter
        if event.name == "channel.created" and wanted.unresolved:
            channel = _channel_data.decode(event.data).channel
            if channel.name in wanted.unresolved:
                self.filter = wanted = Filter(
                    wanted.channels | {channel.id},
                    wanted.topics,
                    wanted.unresolved - {channel.name},
                )
        return wanted.matches(event)
