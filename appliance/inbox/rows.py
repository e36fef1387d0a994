"""Generated from the migrations of the inbox by `just models`: its rows as tuples."""

from typing import Literal, NamedTuple


class HookRunRow(NamedTuple):
    """A row in `hook_runs`."""

    number: int
    id: str
    at: int
    hook: str
    event: str
    mesh: str
    inbox_id: str | None
    outcome: str
    exit_code: int | None
    duration_ms: int
    truncated: int
    said_bytes: int
    acts: str
    command: int | None


class ReceivedMessageRow(NamedTuple):
    """A row in `inbox`."""

    number: int
    id: str
    client_message_id: str
    broker_message_id: str | None
    mesh: str
    topic: str | None
    sender_pubkey: str
    sender_name: str
    body: str | None
    meta: str | None
    received_at: int
    reply_to_id: str | None
    destination_kind: Literal["topic", "dm", "queue"]
    destination_ref: str
    priority: Literal["now", "next", "low"]
    created_at: str
    own: int
