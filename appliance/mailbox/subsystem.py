"""Builds the mailbox subsystem, with the role `network`."""

from collections.abc import Sequence

import msgspec

from appliance.host import Host
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem
from appliance.kernel.tool import Tool
from appliance.mailbox import wire
from appliance.mailbox.contact_asks import ContactAsks
from appliance.mailbox.loops import NetworkLoop
from appliance.mailbox.resources import routes
from appliance.mailbox.service import Mailbox
from appliance.mailbox.settings import NetworkSettings
from appliance.mailbox.tools import tools
from appliance.mailbox.verbs import NetworkVerbs


class MailboxNeeds(msgspec.Struct, frozen=True):
    """The mailbox's needs. `asks`: None without the role `ask`."""

    mailbox: Mailbox
    asks: ContactAsks | None = None


class MailboxSubsystem(Subsystem):
    name = "network"
    role = Role("network agents that this appliance keeps", ("inbox",), is_on=False)
    sections = {"network": NetworkSettings}
    needed_stores = frozenset({"inbox"})
    scopes = wire.SCOPES
    facts_help = {
        "network.agents": "Network agents that this appliance keeps",
        "network.changed_keys": "Contacts with a changed key that nobody has accepted",
        "network.refused_key_logs": "Agents whose relay shows a key log or keys that they refuse",
        "network.relay_failed": "Agents whose last heartbeat failed",
        "network.skew_seconds": "Largest difference between this clock and a relay's clock",
        "network.unreachable": "Contacts that did not respond to the last message to them",
        "network.unusable": "Agent folders that can't be used",
    }

    def __init__(self, host: Host, needs: MailboxNeeds) -> None:
        del host
        self._mailbox, self._verbs = needs.mailbox, NetworkVerbs(needs.mailbox)
        self.loops = (NetworkLoop(needs.mailbox, needs.asks),)

    def routes(self) -> list[Route]:
        return routes(self._mailbox, self._verbs)

    def tools(self) -> Sequence[Tool]:
        return tools(self._verbs)

    def facts(self) -> dict[str, float]:
        return self._mailbox.facts()

    def close(self, timeout_seconds: float) -> bool:
        self._mailbox.close()
        return True
