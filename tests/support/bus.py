"""A bus in a folder, and times for it."""

from pathlib import Path
from typing import Any

from appliance.busfile import messages
from appliance.busfile.file import BusPaths, connect, transaction
from appliance.busfile.messages import NewMessage

NOW = 1_770_000_000_000


class BusFixture:
    """A bus with one connection. Every call is a transaction of its own."""

    def __init__(self, workspace: Path, **options: Any) -> None:
        self.paths = BusPaths(workspace)
        self.connection = connect(self.paths, **options)

    def run(self, function: Any, *args: Any, **options: Any) -> Any:
        with transaction(self.connection):
            return function(self.connection, *args, **options)

    def send(
        self, from_agent: str = "sender", type_: str = "note", *, now: int = NOW, **fields: Any
    ) -> messages.Published:
        message = NewMessage(from_agent=from_agent, type=type_, **fields)
        message = messages.with_blob(self.paths.blobs, message)
        published: messages.Published = self.run(messages.publish, now, message)
        return published

    def poll(self, agent: str, **options: Any) -> list[messages.BusMessage]:
        polled: list[messages.BusMessage] = self.run(
            messages.poll, self.paths.blobs, agent, **options
        )
        return polled

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(query, parameters).fetchall()
