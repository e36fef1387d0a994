"""Tracks the messages that one plugin has yet to process, and how far its cursor may move. Pure.

Events are noted in log order. A message's events share one entry with the first event's id, so the
oldest entry shows up to where everything is processed.
"""

import msgspec

CREATED, EDITED, DELETED = "message.created", "message.edited", "message.deleted"


class PendingEntry(msgspec.Struct):
    event_id: int  # the message's first event
    due_ms: int
    since_ms: int  # time of the first deferral


class PendingMessages:
    """`position`: the last event read from the log."""

    def __init__(
        self, cursor: int, pending_max: int, debounce_ms: int, debounce_ms_max: int
    ) -> None:
        self.position = cursor
        self._pending_max = pending_max
        self._debounce_ms = debounce_ms
        self._debounce_ms_max = max(debounce_ms, debounce_ms_max)
        self._entries: dict[str, PendingEntry] = {}

    @property
    def count(self) -> int:
        return len(self._entries)

    @property
    def has_capacity(self) -> bool:
        return len(self._entries) < self._pending_max

    @property
    def cursor(self) -> int:
        """Return the event up to which everything is processed."""
        for entry in self._entries.values():
            return entry.event_id - 1
        return self.position

    def note(self, event_id: int, name: str, message_id: str, at_ms: int, now_ms: int) -> None:
        """Note the log's next event; `at_ms` is when it happened."""
        self.position = event_id
        if name == CREATED:
            self._entries.setdefault(message_id, PendingEntry(event_id, now_ms, now_ms))
        elif name == EDITED:
            entry = self._entries.setdefault(message_id, PendingEntry(event_id, now_ms, now_ms))
            self._put_off(entry, min(at_ms, now_ms), now_ms)
        elif name == DELETED:
            self._entries.pop(message_id, None)

    def defer(self, message_id: str, now_ms: int) -> None:
        """Process a message later that changed during processing."""
        entry = self._entries.get(message_id)
        if entry is not None:
            self._put_off(entry, now_ms, now_ms)

    def due(self, now_ms: int, limit: int) -> list[str]:
        """Return at most `limit` messages that are due, oldest first."""
        due = []
        for message_id, entry in self._entries.items():
            # A clock that went back must not leave an entry waiting for days.
            if entry.due_ms <= now_ms or entry.due_ms > now_ms + self._debounce_ms_max:
                due.append(message_id)
                if len(due) == limit:
                    break
        return due

    def remove(self, message_id: str) -> None:
        self._entries.pop(message_id, None)

    def _put_off(self, entry: PendingEntry, from_ms: int, now_ms: int) -> None:
        if entry.since_ms > now_ms:
            entry.since_ms = now_ms
        entry.due_ms = min(from_ms + self._debounce_ms, entry.since_ms + self._debounce_ms_max)
