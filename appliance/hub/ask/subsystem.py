"""Adds asks to the appliance."""

from collections.abc import Sequence

import msgspec

from appliance.host import Host
from appliance.hub.ask import wire
from appliance.hub.ask.loops import AskMail, Deadlines, Mailer
from appliance.hub.ask.resources import routes
from appliance.hub.ask.service import Asks
from appliance.hub.ask.settings import AskSettings
from appliance.hub.ask.tools import tools
from appliance.hub.service import Hub
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem
from appliance.kernel.tool import Tool


class AskNeeds(msgspec.Struct, frozen=True):
    """`mail`: None if this appliance sends no mail."""

    hub: Hub
    mail: AskMail | None = None


class AskSubsystem(Subsystem):
    """Asks are stored in the hub's store."""

    name = "ask"
    role = Role("questions to people", ("hub",))
    sections = {"ask": AskSettings}
    needed_stores = frozenset({"hub"})
    scopes = wire.SCOPES

    def __init__(self, host: Host, needs: AskNeeds) -> None:
        settings, clock, log = host.section(AskSettings), host.clock, host.log
        self.asks = Asks(needs.hub, clock, settings)
        self.loops: tuple[Loop, ...] = (Deadlines(self.asks, clock, log),)
        if needs.mail is not None and settings.mail_to:
            self.loops += (Mailer(self.asks, needs.mail, clock, log),)

    def routes(self) -> list[Route]:
        return routes(self.asks)

    def tools(self) -> Sequence[Tool]:
        return tools(self.asks)
