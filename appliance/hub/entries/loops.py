"""Handles deadlines of entries: reminds, reassigns, or marks an entry as overdue."""

from typing import Any

from appliance.hub.deadlines import DeadlineLoop
from appliance.hub.entries import queries, writes
from appliance.hub.entries.service import Entries


class EntryDeadlines(DeadlineLoop):
    name = "entry_deadlines"
    idle_seconds = 5.0  # a post may set a nearer deadline meanwhile
    handled_max = writes.DUE_MAX

    def __init__(self, entries: Entries, *parts: Any) -> None:
        super().__init__(entries.hub, *parts)
        self._entries = entries

    def next_due(self) -> int | None:
        due: int | None = self._entries.store.read(queries.next_due)
        return due

    def handle(self) -> int:
        return self._entries.handle_due()
