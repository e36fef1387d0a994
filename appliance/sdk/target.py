"""Locates a client's hub and verifies it for every connection."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from appliance.kernel.config import secret
from appliance.kernel.errors import Conflict, Invalid
from appliance.sdk.discovery import (
    Endpoint,
    Health,
    HubNotRunning,
    ask_health,
    local,
    remote,
)
from appliance.workspace.datadir import find_workspace

PROTOCOL_MAJOR = 1
_VERSION = re.compile(r"v(\d+)(?:\.\d+)*")


class ProtocolUnknown(Conflict):
    code = "PROTOCOL_UNKNOWN"
    default_message = "the hub uses another protocol version than this SDK"
    default_hint = "install the agentlip release that the hub runs"


class OtherDatabase(Conflict):
    code = "OTHER_DATABASE"
    default_message = "the hub at this address serves another workspace now"
    default_hint = "create a new client to use the other workspace"


class HubTarget:
    """A workspace (default: the nearest one above the working directory) or a URL, and a token.

    The token is `token`, or the content of `token_file` (read for every connection, so that a
    rotation is noticed), or the workspace's token.
    """

    def __init__(
        self,
        workspace: Path | str | None = None,
        url: str | None = None,
        token: str | None = None,
        token_file: Path | str | None = None,
    ) -> None:
        if workspace is not None and url is not None:
            raise Invalid("workspace and url are mutually exclusive")
        if token is not None and token_file is not None:
            raise Invalid("token and token_file are mutually exclusive")
        if workspace is None and url is None:
            url = os.environ.get("AGENTLIP_URL") or None
        self._locate: Callable[[], tuple[Endpoint, Health]]
        if url is None:
            # Resolved once, so that a later directory change does not matter.
            datadir = find_workspace(None if workspace is None else Path(workspace))
            self._locate = lambda: local(datadir, os.environ)
        else:
            self._locate = lambda: self._at(url)
        self._token = token
        self._token_file = None if token_file is None else str(token_file)
        self.health = Health()

    def __repr__(self) -> str:
        return f"HubTarget(db_id={self.health.db_id!r})"

    def locate(self) -> Endpoint:
        """Return the hub's current address, after its identity was verified."""
        endpoint, health = self._locate()
        check_protocol(health)
        db_id = self.health.db_id
        if db_id and health.db_id and health.db_id != db_id:
            raise OtherDatabase(details={"expected": db_id, "found": health.db_id})
        self.health = health
        if self._token is not None:
            return msgspec.structs.replace(endpoint, token=self._token)
        if self._token_file is not None:
            return msgspec.structs.replace(endpoint, token=secret(self._token_file, "token_file"))
        return endpoint

    def _at(self, url: str) -> tuple[Endpoint, Health]:
        environment = {**os.environ, "AGENTLIP_URL": url}
        if self._token is not None or self._token_file is not None:
            environment.pop("AGENTLIP_TOKEN_FILE", None)
        endpoint = remote(environment)
        health = ask_health(endpoint)
        if health is None:
            raise HubNotRunning(f"no hub answers at {endpoint.url}")
        return endpoint, health


def check_protocol(health: Health) -> None:
    """Accept every minor version within the known major version."""
    version = _VERSION.fullmatch(health.protocol_version)
    if health.protocol_version and (version is None or int(version[1]) != PROTOCOL_MAJOR):
        raise ProtocolUnknown(
            f"the hub uses protocol {health.protocol_version[:20]},"
            f" this SDK uses v{PROTOCOL_MAJOR}",
            details={"hub": health.protocol_version[:20], "sdk": f"v{PROTOCOL_MAJOR}"},
        )
