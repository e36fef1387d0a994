"""Decides who may answer an ask, for tokens, mail links, webhooks, tools and the UI."""

from collections.abc import Iterable

import msgspec

from appliance.hub.ask import wire
from appliance.hub.ask.queries import StoredAsk
from appliance.hub.wire import POST, READ
from appliance.kernel.auth import Principal


class Answerer(msgspec.Struct, frozen=True):
    """Somebody who settles an ask.

    sender, principal  those of the reply
    name               the entry in `may_answer`: a token's name, a mail address, a webhook's id
    channels           the only channels whose asks it may answer; None: all
    """

    sender: str
    principal: str | None
    via: wire.Via = "api"
    name: str | None = None
    channels: frozenset[str] | None = None


def may_answer(ask: StoredAsk, who: Answerer) -> bool:
    """Return whether this caller may answer. Every answer and every offer depends on this."""
    is_named = not ask.may_answer or who.name in ask.may_answer
    return is_named and (who.channels is None or ask.row.channel_id in who.channels)


def channels_of(
    principal: Principal, scopes: Iterable[str] = (READ, POST, wire.ANSWER)
) -> frozenset[str] | None:
    """Return the only channels in which all these scopes are granted; None: all."""
    limits = [each for each in map(principal.channels_for, scopes) if each is not None]
    return frozenset.intersection(*limits) if limits else None
