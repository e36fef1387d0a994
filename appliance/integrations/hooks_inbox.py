"""Gives hooks the names of this member, and the URL of this process."""

from collections.abc import Collection

from appliance.host import Host
from appliance.identity.service import MemberIdentity
from appliance.inbox.subsystem import InboxSubsystem
from appliance.kernel.ownership import read_small
from appliance.sdk.discovery import endpoint_of
from appliance.web.settings import HttpSettings
from appliance.workspace.datadir import ServerFile


def own_names(inbox: InboxSubsystem, identity: MemberIdentity, mesh: str) -> Collection[str]:
    """What others can mention this member by in a mesh: its key and its name there."""
    source = inbox.connections.get(mesh) or inbox.inbox.broker_clients.get(mesh)
    name = getattr(source, "member_name", None)  # brokers elsewhere send it with hello_ack
    return [identity.public_hex, *([name] if name else [])]


def own_url(host: Host) -> str:
    """The URL of this process on its own machine, once it listens."""
    text = (read_small(host.served.dir / "port") or b"").strip()
    port = int(text) if text.isdigit() else 0
    return endpoint_of(ServerFile(host=host.section(HttpSettings).host, port=port)).url
