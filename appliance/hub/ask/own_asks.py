"""Asks by the appliance itself, for a subsystem that needs a person's decision."""

from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar

import msgspec

from appliance.hub.access import POST, READ
from appliance.hub.ask import wire
from appliance.hub.ask.service import Asks
from appliance.kernel.auth import Principal

_shown = msgspec.json.Decoder(wire.AskShown).decode


class OwnAsks:
    """A subclass names the sender. No token has the principal's name."""

    sender: ClassVar[str]

    def __init__(self, asks: Asks) -> None:
        self._asks = asks
        name = f"appliance:{self.sender}"
        self._principal = Principal(name, name, frozenset({POST, READ}))

    def answer(self, ask_id: str) -> str | None:
        """Return the answer; None while nobody has answered; "" if the ask ended without an answer,
        or the restored hub does not have it."""
        try:
            return answer_of(self._asks.show(ask_id, 0.0, self._principal).ask)
        except wire.NoSuchAsk:
            return ""

    def listen(self, wake: Callable[[], None]) -> None:
        self._asks.on_settled(wake)

    def cancel(self, ask_id: str) -> None:
        with suppress(wire.NoSuchAsk, wire.AskSettled):
            self._asks.cancel(ask_id, wire.CancelAsk(self.sender), self._principal)

    def _create(self, command: wire.CreateAsk, key: str, name: str | None = None) -> wire.Ask:
        """Return the key's ask, which is created if it doesn't exist, under the name if given."""
        who = (
            self._principal if name is None else msgspec.structs.replace(self._principal, name=name)
        )
        return _shown(self._asks.create(command, who, key).body).ask


def answer_of(ask: wire.Ask) -> str | None:
    return None if ask.state == "waiting" else ask.answer or ""
