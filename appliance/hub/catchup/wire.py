"""Defines requests, replies and errors of catch-ups, topic states and pins."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from appliance.hub.wire import EventId, Limit, Message, Reference, Sender
from appliance.kernel.errors import Exhausted, Invalid

NOTE_BYTES_MAX = 8000
PINS_MAX = 50  # in one channel: more are no longer read
PAGE_MAX = 200  # pins in one response; a larger `limit` is clamped
TOKENS_MIN = 100  # the five headings with their commands need nearly as many
TOKENS_MAX = 20_000  # beyond it, the topics themselves are easier to read
BYTES_PER_TOKEN = 4

Name = Annotated[Sender, Meta(description="a sender's name; missing: the token's name")]
Note = Annotated[
    str, Meta(min_length=1, max_length=NOTE_BYTES_MAX, description="at most 8,000 bytes of UTF-8")
]
Tokens = Annotated[int, Meta(ge=TOKENS_MIN, le=TOKENS_MAX, description="four bytes each")]
Since = Annotated[EventId, Meta(description="`next` from the last catch-up")]
PartName = Literal["questions", "claims", "entries", "pins", "topics"]


class ChangeTopic(Struct, frozen=True, omit_defaults=True):
    note: Note
    name: Name | None = None


class WriteHandoff(Struct, frozen=True, omit_defaults=True):
    """`expected_version`: the version that the writer has read; 0: there is none yet.
    `up_to_event`: the newest event that the note covers; missing: the log's newest event."""

    note: Note
    expected_version: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    up_to_event: EventId | None = None
    name: Name | None = None


class Handoff(Struct, frozen=True):
    """A topic's note for readers that join late. `up_to_event`: the event up to which the note
    covers the topic."""

    note: str
    author: str
    written_at: str
    up_to_event: int
    version: int


class TopicState(Struct, frozen=True):
    """`note`, `changed_by`, `changed_at`: from the last time that the topic was resolved or
    reopened."""

    topic_id: str
    channel_id: str
    title: str
    resolved: bool = False
    note: str | None = None
    changed_by: str | None = None
    changed_at: str | None = None
    handoff: Handoff | None = None


class TopicStateShown(Struct, frozen=True):
    """`messages_since`: messages that the handoff note doesn't cover, counted in the topic's next
    1,000 events."""

    state: TopicState
    messages_since: int


class TopicStateChanged(Struct, frozen=True):
    """`changed`: false if the topic's state was so before. Then `event_id` is null."""

    state: TopicState
    changed: bool
    event_id: int | None = None


class PinMessage(Struct, frozen=True, omit_defaults=True):
    name: Name | None = None


class Pin(Struct, frozen=True):
    message_id: str
    channel_id: str
    pinned_by: str
    pinned_at: str


class PinChanged(Struct, frozen=True):
    """`changed`: false if it was so before. Then `event_id` is null."""

    pin: Pin
    changed: bool
    event_id: int | None = None


class PinsQuery(Struct, frozen=True):
    channel_id: Reference | None = None
    limit: Limit = 50


class PinnedMessage(Struct, frozen=True):
    pin: Pin
    message: Message


class PinList(Struct, frozen=True):
    """Pinned messages, the last pinned first, without deleted ones."""

    pins: list[PinnedMessage]
    has_more: bool = False


class CatchUpQuery(Struct, frozen=True):
    """`name`: whose questions, claims and entries. `tokens`: the longest text, as its JSON form in
    UTF-8 bytes, divided by four and rounded up."""

    name: Name | None = None
    since: Since = 0
    tokens: Tokens = 2000


class CatchUpItem(Struct, frozen=True):
    id: str
    line: str


class CatchUpPart(Struct, frozen=True, omit_defaults=True):
    """`more`: how many items are left out, and `command` lists them all. `is_bound`: at least so
    many. `unavailable`: why this part can't be read."""

    part: PartName
    items: list[CatchUpItem]
    more: int
    command: str
    is_bound: bool = False
    unavailable: str = ""


class CatchUp(Struct, frozen=True):
    """A summary for a name, most urgent first. `text` has the lines in `parts`, and
    `tokens` its length. `next`: `since` for the next catch-up."""

    name: str
    next: int
    tokens: int
    text: str
    parts: list[CatchUpPart]


class CatchUpText(Struct, frozen=True):
    text: str
    next: int


class TooManyPins(Exhausted):
    code = "TOO_MANY_PINS"
    default_message = "too many pinned messages in this channel"
    default_hint = "agentlip msg unpin MESSAGE; agentlip msg pins lists them"


class PinnedDeleted(Invalid):
    default_message = "a deleted message can't be pinned"
    default_hint = "pin another message"
