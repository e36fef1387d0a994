"""Gives hooks the names of this member, and the URL of this process."""

from collections.abc import Collection

from appliance.identity.service import MemberIdentity
from appliance.inbox.subsystem import InboxSubsystem
from appliance.workspace.datadir import DataDir

ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}


class OwnNames:
    """What others can mention this member by in a mesh: its key and its name there."""

    def __init__(self, inbox: InboxSubsystem, identity: MemberIdentity) -> None:
        self._inbox = inbox
        self._identity = identity

    def __call__(self, mesh: str) -> Collection[str]:
        source = self._inbox.connections.get(mesh) or self._inbox.inbox.broker_clients.get(mesh)
        name = getattr(source, "member_name", None)  # brokers elsewhere send it with hello_ack
        return [self._identity.public_hex, *([name] if name else [])]


class OwnUrl:
    """The URL of this process on its own machine, once it listens."""

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
