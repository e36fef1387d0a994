"""Adds the relay to the appliance."""

import msgspec

from appliance.host import Host
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem
from appliance.relay import group_writes, key_log, v1, wire, writes
from appliance.relay.broadcast_poster import BroadcastPoster
from appliance.relay.group_routes import group_routes
from appliance.relay.loops import (
    ApprovalAsker,
    ApprovalAsks,
    EndpointChecker,
    KeyRecoverer,
    RelayPruner,
)
from appliance.relay.mail import CodeMail, LocalCodes
from appliance.relay.resources import routes
from appliance.relay.service import Relay
from appliance.relay.settings import RelaySettings


class RelayNeeds(msgspec.Struct, frozen=True):
    """The relay's needs. `mail`: None without a mail server; codes then stay on this machine.
    `asks`: None without the role `ask`."""

    mail: CodeMail | None = None
    asks: ApprovalAsks | None = None


class RelaySubsystem(Subsystem):
    name = "relay"
    role = Role("identity, contacts and presence for the agent network", is_on=False)
    sections = {"relay": RelaySettings}
    needed_stores = frozenset({"relay"})
    scopes = wire.SCOPES

    def __init__(self, host: Host, needs: RelayNeeds) -> None:
        mail = needs.mail or LocalCodes(host.datadir, host.log)
        self.store = host.open_store("relay")
        self.relay = Relay(self.store, mail, host.section(RelaySettings), host.clock, host.log)
        if not self.store.settings.read_only:  # agents know the key before its first signature
            self.store.write(writes.make_relay_key)
            self.store.write(key_log.begin)
            self.store.write(group_writes.end_lost)
        options = host.section(RelaySettings).options
        self.relay.open(self.store.write(v1.begin) if "v1" in options else 0)
        self.stores = (self.store,)
        self.loops: tuple[Loop, ...] = (
            RelayPruner(self.relay, host.datadir.dir / "relay-v1"),
            EndpointChecker(self.relay),
            KeyRecoverer(self.relay),
            BroadcastPoster(self.relay),
        )
        if "ask" in options and needs.asks is not None:
            self.loops += (ApprovalAsker(self.relay, needs.asks),)

    def routes(self) -> list[Route]:
        return [*routes(self.relay), *group_routes(self.relay)]
