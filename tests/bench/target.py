"""What is measured: an appliance on this machine, found by its workspace. Loopback or nothing."""

import ipaddress
import json
from pathlib import Path


class Refused(Exception):
    """The benchmark will not do that; the text says why."""


class RowFailed(Exception):
    """Work was lost, refused or answered wrongly: the row has no figure."""


class Target:
    """Where requests go. `pid` is the server's, for its CPU and memory."""

    def __init__(self, host: str, port: int, token: str, pid: int, database: Path) -> None:
        self.host = loopback(host)
        self.port = port
        self.token = token
        self.pid = pid
        self.database = database

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port


def loopback(host: str) -> str:
    """`host` if it is an address of the loopback; names are not looked up."""
    try:
        if ipaddress.ip_address(host).is_loopback:
            return host
    except ValueError:
        pass
    raise Refused(f"{host} is not a loopback address: loads go nowhere else")


def of_workspace(workspace: Path) -> Target:
    """The appliance that serves `workspace` now. Raises OSError, ValueError or KeyError."""
    facts = json.loads((workspace / ".agentlip" / "server.json").read_text())
    database = workspace / ".agentlip" / "db.sqlite3"
    host = "127.0.0.1" if facts["host"] in ("localhost", "0.0.0.0") else facts["host"]
    return Target(host, facts["port"], facts["auth_token"], facts["pid"], database)
