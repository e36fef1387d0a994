"""What hooks ask of the inbox: how its member is called, and where this process answers."""

from collections.abc import Collection

from appliance.identity.service import Identity
from appliance.inbox.subsystem import InboxSubsystem
from appliance.kernel.datadir import DataDir

ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}


class OwnNames:
    """By what others mention this member in a mesh: its key, and its name there."""

    def __init__(self, inbox: InboxSubsystem, identity: Identity) -> None:
        self._inbox = inbox
        self._identity = identity

    def __call__(self, mesh: str) -> Collection[str]:
        named = self._inbox.receivers.get(mesh) or self._inbox.inbox.broker_clients.get(mesh)
        name = getattr(named, "member_name", None)  # a broker elsewhere is asked for none
        return [self._identity.public_hex, *([name] if name else [])]


class OwnUrl:
    """Where this process answers on its own machine; known once it has bound."""

    def __init__(self, host: str, datadir: DataDir) -> None:
        self._host = ANY_ADDRESS.get(host, host)
        self._datadir = datadir

    def __call__(self) -> str:
        try:
            port = int((self._datadir.dir / "port").read_text())
        except (OSError, ValueError):
            port = 0
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{port}"
