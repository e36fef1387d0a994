"""Which hub a client means, and whether what answers is that hub. Asked at every connection."""

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
    find_workspace,
    local,
    remote,
)

PROTOCOL_MAJOR = 1
_VERSION = re.compile(r"v(\d+)(?:\.\d+)*")


class ProtocolUnknown(Conflict):
    code = "PROTOCOL_UNKNOWN"
    sentence = "the hub speaks another protocol than this SDK"
    advice = "install the release of agentlip that the hub runs"


class OtherDatabase(Conflict):
    code = "OTHER_DATABASE"
    sentence = "another workspace's hub answers at this address now"
    advice = "make a new client if that is meant"


class Target:
    """A workspace (named, or looked for from here upwards) or a URL, and a token for it.

    The token is `token`, or the text of `token_file` (read again at every connection, so
    that a rotation is noticed), or the workspace's own.
    """

    def __init__(
        self,
        workspace: Path | str | None = None,
        url: str | None = None,
        token: str | None = None,
        token_file: Path | str | None = None,
    ) -> None:
        if workspace is not None and url is not None:
            raise Invalid("name the hub by workspace or by url, not by both")
        if token is not None and token_file is not None:
            raise Invalid("give the token by token or by token_file, not by both")
        if workspace is None and url is None:
            url = os.environ.get("AGENTLIP_URL") or None
        self._locate: Callable[[], tuple[Endpoint, Health]]
        if url is None:
            # Found once: a program that changes its directory still means the same hub.
            datadir = find_workspace(None if workspace is None else Path(workspace))
            self._locate = lambda: local(datadir, os.environ)
        else:
            self._locate = lambda: self._at(url)
        self._token = token
        self._token_file = None if token_file is None else str(token_file)
        self.health = Health()

    def __repr__(self) -> str:
        return f"Target(db_id={self.health.db_id!r})"

    def locate(self) -> Endpoint:
        """Where the hub is now, after it has shown who it is."""
        endpoint, health = self._locate()
        check_protocol(health)
        known = self.health.db_id
        if known and health.db_id and health.db_id != known:
            raise OtherDatabase(details={"expected": known, "found": health.db_id})
        self.health = health
        if self._token is not None:
            return msgspec.structs.replace(endpoint, token=self._token)
        if self._token_file is not None:
            return msgspec.structs.replace(endpoint, token=secret(self._token_file))
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
    """Minor versions only add; another major one would be misunderstood."""
    found = _VERSION.fullmatch(health.protocol_version)
    if health.protocol_version and (found is None or int(found[1]) != PROTOCOL_MAJOR):
        raise ProtocolUnknown(
            f"the hub speaks protocol {health.protocol_version[:20]},"
            f" this SDK speaks v{PROTOCOL_MAJOR}",
            details={"hub": health.protocol_version[:20], "sdk": f"v{PROTOCOL_MAJOR}"},
        )
