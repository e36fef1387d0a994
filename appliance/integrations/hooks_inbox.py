"""Gives hooks the URL of this process."""

from appliance.host import Host
from appliance.kernel.ownership import read_small
from appliance.sdk.discovery import endpoint_of
from appliance.web.settings import HttpSettings
from appliance.workspace.datadir import ServerFile


def own_url(host: Host) -> str:
    """Return this process's URL on its own machine. The port is known once the process listens."""
    text = (read_small(host.served.dir / "port") or b"").strip()
    port = int(text) if text.isdigit() else 0
    return endpoint_of(ServerFile(host=host.section(HttpSettings).host, port=port)).url
