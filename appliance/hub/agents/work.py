"""Defines the work that one turn gets, as JSON or as text."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

Rows = Sequence[Mapping[str, Any]]


class Work(msgspec.Struct, frozen=True):
    """One turn's work. `reminder`: an earlier turn left these entries. Envelopes have `stream`,
    `attempt` and `envelope`; messages are the worker bus's."""

    reminder: bool = False
    entries: Rows = ()
    envelopes: Rows = ()
    messages: Rows = ()

    def to_json(self, name: str, turn: int) -> dict[str, Any]:
        return {"agent": name, "turn": turn, **msgspec.to_builtins(self)}

    def to_text(self, name: str) -> str:
        return "\n".join(self._paragraphs(name))

    def _paragraphs(self, name: str) -> Iterator[str]:
        if self.reminder:
            yield "These entries were not acknowledged in your last turn.\n"
        for entry in self.entries:
            message = entry["message"]
            yield f"Entry {entry['id']} from {message['sender']}:\n{message['content_raw']}\n"
        for row in self.envelopes:
            sent = row["envelope"]
            yield f"Envelope {sent['id']} ({sent['type']}) from {row['stream']}:\n{_json(sent)}\n"
        for row in self.messages:
            yield f"Bus message {row['type']} from {row['from_agent']}:\n{_json(row)}\n"
        if self.entries:
            ids = " ".join(str(entry["id"]) for entry in self.entries)
            words = f"agentlip inbox ack {ids} --as {shlex.quote(name)}"
            yield f"When they are handled: {words}\n"


def _json(row: Mapping[str, Any]) -> str:
    return msgspec.json.encode(row.get("payload")).decode()
