"""Defines ask requests, replies and errors."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from appliance.hub.wire import Limit, Sender, TopicReference
from appliance.kernel.auth import ANSWER as ANSWER
from appliance.kernel.errors import Conflict, Exhausted, Forbidden, Invalid, Missing
from appliance.kernel.scopes import Scopes

ADMIN = "ask:admin"
"""No token can have this scope directly: only `admin` includes it."""

SCOPES = Scopes(frozenset({ANSWER}))
TEXT_BYTES_MAX = 16_384
ANSWER_BYTES_MAX = 8_192
CHOICES_MAX = 10
DEADLINE_SECONDS_MAX = 90 * 86_400
WAIT_SECONDS_MAX = 60.0

State = Literal["waiting", "answered", "defaulted", "expired", "cancelled"]
Via = Literal["api", "mail", "webhook", "deadline"]
AskText = Annotated[
    str, Meta(min_length=1, max_length=TEXT_BYTES_MAX, description="at most 16,384 bytes in UTF-8")
]
Choice = Annotated[str, Meta(min_length=1, max_length=100)]
Answer = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=ANSWER_BYTES_MAX,
        description="one of the choices; without choices any text, at most 8,192 bytes in UTF-8",
    ),
]
TokenName = Annotated[str, Meta(min_length=1, max_length=100)]
Blocked = Annotated[str, Meta(min_length=1, max_length=200)]
Address = Annotated[str, Meta(min_length=1, max_length=254)]
Seconds = Annotated[int, Meta(ge=1, le=DEADLINE_SECONDS_MAX)]


class Ask(Struct, frozen=True):
    """An ask.

    `asker` and `principal`: the question's sender and token. `default`: the answer at the deadline.
    `may_answer`: token names, mail addresses and webhook ids that alone may answer; empty:
    everybody with the scope. `blocks`: what waits for the answer. `answered_by` and
    `answered_principal`: the reply's sender and token, also a cancellation's. `reply_id`: the
    message with the answer."""

    id: str
    state: State
    text: str
    choices: list[str]
    default: str | None
    deadline: str | None
    may_answer: list[str]
    blocks: list[str]
    asker: str
    principal: str | None
    created_at: str
    channel_id: str
    topic_id: str
    message_id: str
    answer: str | None
    answered_by: str | None
    answered_principal: str | None
    answered_via: Via | None
    settled_at: str | None
    reply_id: str | None


class CreateAsk(Struct, frozen=True):
    """Without choices, the answer is any text. Without `deadline_seconds`, the ask waits for an
    answer or a cancellation. Without a topic, the question goes to the channel for asks. `mail_to`:
    the addresses from `mail_to` in `[ask]` that get a mail; missing: all that may answer."""

    text: AskText
    sender: Sender
    choices: Annotated[list[Choice], Meta(max_length=CHOICES_MAX)] = []
    default: Answer | None = None
    deadline_seconds: Seconds | None = None
    may_answer: Annotated[list[TokenName], Meta(max_length=20)] = []
    blocks: Annotated[list[Blocked], Meta(max_length=20)] = []
    topic_id: TopicReference | None = None
    mail_to: Annotated[list[Address], Meta(max_length=20)] | None = None


class AnswerAsk(Struct, frozen=True):
    """An answer. Without `sender`, the token's name."""

    answer: Answer
    sender: Sender | None = None


class CancelAsk(Struct, frozen=True):
    sender: Sender | None = None


class AskQuery(Struct, frozen=True):
    """`wait`: seconds to wait while nobody has settled it, at most 60."""

    wait: Annotated[float, Meta(ge=0)] = 0.0


class AsksQuery(Struct, frozen=True):
    """`mine`: only what this token may answer."""

    state: State | None = None
    mine: bool = False
    asker: Sender | None = None
    after: Annotated[str, Meta(max_length=64, description="`next` from the previous page")] = ""
    limit: Limit = 50


class AskShown(Struct, frozen=True):
    ask: Ask


class AskList(Struct, frozen=True):
    """Asks, newest first. `next`: `after` for the next page."""

    asks: list[Ask]
    has_more: bool = False
    next: str = ""


class AnswerSecret(Struct, frozen=True):
    """A secret. `secret`: the key that signs links, in base64. A new webhook secret replaces it."""

    webhook_id: str
    secret: str


class NoSuchAsk(Missing):
    default_message = "ask not found"
    default_hint = "agentlip ask list"


class AskSettled(Conflict):
    """`details` has the state, the answer, and who settled it when."""

    code = "ASK_SETTLED"
    default_message = "this ask is already settled"
    default_hint = "agentlip ask show ASK_ID"


class NoSuchLink(Missing):
    default_message = "this link was not made by this appliance"
    default_hint = "copy the whole link, or for a webhook: agentlip ask answer-secret WEBHOOK"


class MailNotPermitted(Forbidden):
    code = "ASK_MAIL_NOT_PERMITTED"
    default_message = "this address is not in `mail_to` in `[ask]`"
    default_hint = "add it to ask.mail_to in agentlip.toml, then: agentlipd restart"


class NotAChoice(Invalid):
    code = "NOT_A_CHOICE"
    default_message = "the answer is not one of the choices"
    default_hint = "answer with one of details.choices, exactly as written there"


class MayNotAnswer(Forbidden):
    code = "MAY_NOT_ANSWER"
    default_message = "this caller is not allowed to answer this ask"
    default_hint = "agentlip ask show ASK_ID lists them"


class NotYourAsk(Forbidden):
    code = "NOT_YOUR_ASK"
    default_message = "only the token that asked, or one with the scope admin, can cancel an ask"
    default_hint = "agentlip token list"


class TooManyAsks(Exhausted):
    code = "TOO_MANY_ASKS"
    default_message = "too many asks from this token wait for an answer"
    default_hint = "agentlip ask list --state waiting; agentlip ask cancel ID"
