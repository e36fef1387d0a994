"""The committed events of the inbox, on their way to readers and listeners."""

from collections.abc import Callable

from appliance.inbox.event import InboxEvent
from appliance.kernel.feed import Feed
from appliance.kernel.log import Log

Listener = Callable[[InboxEvent], None]


class InboxEvents:
    """`feed` is for readers. Listeners are called with each event, on the event loop."""

    def __init__(self, log: Log) -> None:
        self.feed = Feed()
        self._listeners: list[Listener] = []
        self._log = log

    def call(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def publish(self, events: list[InboxEvent]) -> None:
        """Called after a commit."""
        self.feed.publish(events)
        for event in events:
            for listener in self._listeners:
                try:
                    listener(event)
                except Exception as error:
                    self._log.error("a listener of the inbox failed", error)
