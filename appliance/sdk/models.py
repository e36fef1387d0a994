"""Defines the structs that SDK clients return. Unknown fields from a newer hub are ignored.

The hub specification's structs are the hub's own. All further structs have the names and fields on
the wire; fields that another hub release may omit have defaults, so client and hub can be upgraded
in any order.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from appliance.hub.blobs.wire import Blob as Blob
from appliance.hub.blobs.wire import BlobErased as BlobErased
from appliance.hub.blobs.wire import BlobPut as BlobPut
from appliance.hub.blobs.wire import BlobUsage as BlobUsage
from appliance.hub.bounds.wire import Ceiling as Ceiling
from appliance.hub.bounds.wire import CeilingRemoved as CeilingRemoved
from appliance.hub.bounds.wire import CeilingShown as CeilingShown
from appliance.hub.bounds.wire import PauseChanged as PauseChanged
from appliance.hub.bounds.wire import ShownPause as ShownPause
from appliance.hub.catchup.wire import CatchUp as CatchUp
from appliance.hub.catchup.wire import PinChanged as PinChanged
from appliance.hub.catchup.wire import PinnedMessage as PinnedMessage
from appliance.hub.catchup.wire import TopicStateChanged as TopicStateChanged
from appliance.hub.catchup.wire import TopicStateShown as TopicStateShown
from appliance.hub.entries.wire import Entry as Entry
from appliance.hub.entries.wire import EntryPage as EntryPage
from appliance.hub.entries.wire import Followed as Followed
from appliance.hub.entries.wire import MessageCreated as MessageCreated
from appliance.hub.entries.wire import MessageReceipt as MessageReceipt
from appliance.hub.entries.wire import Settled as Settled
from appliance.hub.wire import Attachment as Attachment
from appliance.hub.wire import AttachmentAdded as AttachmentAdded
from appliance.hub.wire import Channel as Channel
from appliance.hub.wire import ChannelCreated as ChannelCreated
from appliance.hub.wire import FoundMessage as FoundMessage
from appliance.hub.wire import Message as Message
from appliance.hub.wire import MessageChanged as MessageChanged
from appliance.hub.wire import Mode as Mode
from appliance.hub.wire import Moved as Moved
from appliance.hub.wire import Scope as Scope
from appliance.hub.wire import SearchResult as SearchResult
from appliance.hub.wire import Topic as Topic
from appliance.hub.wire import TopicChanged as TopicChanged
from appliance.outbox.wire import Priority as Priority
from appliance.sdk.errors import Refused


class Envelope(msgspec.Struct, frozen=True):
    """One event. docs/reference/events.md shows `data` of each `name`; ignore unknown names."""

    event_id: int
    name: str
    ts: str = ""
    scope: Scope = Scope()
    data: dict[str, Any] = {}


class EventRow(msgspec.Struct, frozen=True):
    """One event in a page; `data_json` is an envelope's `data`."""

    event_id: int
    name: str
    ts: str = ""
    scope: Scope = Scope()
    data_json: dict[str, Any] = {}


class EventPage(msgspec.Struct, frozen=True):
    """Events after a cursor. `replay_until`: the newest event in the log."""

    events: list[EventRow]
    replay_until: int
    has_more: bool = False


class Enrichment(msgspec.Struct, frozen=True):
    """A plugin's finding: `span` is {"start": n, "end": n}, in text characters."""

    id: str
    kind: str
    span: dict[str, int]
    data: dict[str, Any] = {}
    plugin: str | None = None
    created_at: str = ""


class SendAccepted(msgspec.Struct, frozen=True):
    """The outbox stored a send. `broker_message_id` if it was delivered before."""

    client_message_id: str
    status: str = ""
    duplicate: bool = False
    broker_message_id: str | None = None


class SendState(msgspec.Struct, frozen=True):
    """`status`: `pending`, `inflight`, `done`, `dead` or `aborted`."""

    id: str
    client_message_id: str
    status: str
    to: str
    mesh: str = ""
    attempts: int = 0
    enqueued_at: str = ""
    next_attempt_at: str | None = None
    last_error: str | None = None
    delivered_at: str | None = None
    broker_message_id: str | None = None


class InboxMessage(msgspec.Struct, frozen=True):
    """A message received from a mesh. `own`: this member sent it."""

    number: int
    id: str
    mesh: str
    sender_pubkey: str
    sender_name: str
    client_message_id: str = ""
    topic: str | None = None
    priority: Priority = "next"
    meta: Any = None
    body: str | None = None
    reply_to_id: str | None = None
    created_at: str = ""
    received_at: str = ""
    own: bool = False


class Ask(msgspec.Struct, frozen=True):
    """A question to a person. `state`: `waiting`, `answered`, `defaulted`, `expired`, `cancelled`.
    Only `answered` and `defaulted` have an `answer`."""

    id: str
    state: str
    text: str = ""
    answer: str | None = None
    answered_by: str | None = None
    message_id: str = ""


class NewMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One batch message. With your own key you can repeat it in another process."""

    topic_id: str
    sender: str
    content_raw: str
    idempotency_key: str | None = None
    to: Sequence[str] = ()
    ack_by_seconds: int | None = None
    on_overdue: str | None = None


BatchOutcome = MessageChanged | Refused
