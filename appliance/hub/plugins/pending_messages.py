"""The messages one plugin has yet to see, and how far its cursor may go. Pure.

Events are noted in the order of the log. Several about one message become one entry, which
keeps the place of the first: so the oldest entry says how far all is done.
"""

import msgspec

CREATED, EDITED, DELETED = "message.created", "message.edited", "message.deleted"


class Entry(msgspec.Struct):
    event_id: int  # the first event that asked for it
    due_ms: int
    since_ms: int  # when it was first put off


class Agenda:
    """`position`: up to where the log has been read."""

    def __init__(
        self, cursor: int, pending_max: int, debounce_ms: int, debounce_ms_max: int
    ) -> None:
        self.position = cursor
        self._pending_max = pending_max
        self._debounce_ms = debounce_ms
        self._debounce_ms_max = max(debounce_ms, debounce_ms_max)
        self._entries: dict[str, Entry] = {}

    @property
    def pending(self) -> int:
        return len(self._entries)

    @property
    def has_room(self) -> bool:
        return len(self._entries) < self._pending_max

    @property
    def mark(self) -> int:
        """Everything up to this event has been dealt with."""
        for entry in self._entries.values():
            return entry.event_id - 1
        return self.position

    def note(self, event_id: int, name: str, message_id: str, at_ms: int, now_ms: int) -> None:
        """The next event of the log; `at_ms` is when it happened."""
        self.position = event_id
        if name == CREATED:
            self._entries.setdefault(message_id, Entry(event_id, now_ms, now_ms))
        elif name == EDITED:
            entry = self._entries.setdefault(message_id, Entry(event_id, now_ms, now_ms))
            self._put_off(entry, min(at_ms, now_ms), now_ms)
        elif name == DELETED:
            self._entries.pop(message_id, None)

    def again(self, message_id: str, now_ms: int) -> None:
        """It changed while it was worked on: later, when it has calmed down."""
        entry = self._entries.get(message_id)
        if entry is not None:
            self._put_off(entry, now_ms, now_ms)

    def due(self, now_ms: int, most: int) -> list[str]:
        """At most `most` messages whose time has come, oldest first."""
        found = []
        for message_id, entry in self._entries.items():
            # A clock that went back must not leave an entry waiting for days.
            if entry.due_ms <= now_ms or entry.due_ms > now_ms + self._debounce_ms_max:
                found.append(message_id)
                if len(found) == most:
                    break
        return found

    def done(self, message_id: str) -> None:
        self._entries.pop(message_id, None)

    def _put_off(self, entry: Entry, from_ms: int, now_ms: int) -> None:
        if entry.since_ms > now_ms:
            entry.since_ms = now_ms
        entry.due_ms = min(from_ms + self._debounce_ms, entry.since_ms + self._debounce_ms_max)
