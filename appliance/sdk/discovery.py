"""Finds the workspace, its hub, and the hub's token.

`server.json` is only a hint. The program at that address must serve this workspace's database
according to `/health` before the client sends the token.
"""

import http.client
import os
import shlex
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from appliance.kernel.config import secret
from appliance.kernel.errors import Invalid, Unauthenticated, Unavailable
from appliance.sdk.database import WorkspaceDatabase
from appliance.workspace.datadir import (
    DataDir,
    ServerFile,
    find_workspace,
    pid_alive,
    read_lock,
)

HEALTH_TIMEOUT_SECONDS = 5.0
HEALTH_BYTES_MAX = 65_536
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}


class HubNotRunning(Unavailable):
    code = "HUB_NOT_RUNNING"
    default_message = "no hub is running"
    default_hint = "start one with 'agentlipd up'"


class StaleServerFile(Unavailable):
    code = "STALE_SERVER_FILE"
    default_message = "server.json is stale: another program uses the hub's address"
    default_hint = "start this workspace's hub with 'agentlipd up'"


class BadAddress(Invalid):
    code = "BAD_ADDRESS"
    default_message = "AGENTLIP_URL must look like http://127.0.0.1:7464 or https://hub.example.org"
    default_hint = (
        "export AGENTLIP_URL=http://127.0.0.1:7464, or unset it to use the current workspace"
    )


class Health(msgspec.Struct, frozen=True):
    """The response from `/health`; remote clients may get fewer details."""

    status: str = "ok"
    instance_id: str = ""
    db_id: str = ""
    schema_version: int = 0
    protocol_version: str = ""
    uptime_seconds: float = 0.0
    pid: int = 0
    epoch: str = ""


class ReadyResponse(msgspec.Struct, frozen=True):
    """The response from `/-/ready`; remote clients may get no `findings` and no `facts`."""

    ready: bool = False
    failing: list[str] = []
    suspended: list[str] = []
    instance_id: str = ""
    findings: list[dict[str, Any]] | None = None
    facts: dict[str, float] | None = None


class Endpoint(msgspec.Struct, frozen=True):
    """A hub's address and the token for it."""

    host: str
    port: int
    secure: bool = False
    prefix: str = ""
    token: str | None = None

    @property
    def url(self) -> str:
        return f"http{'s' if self.secure else ''}://{self.authority}{self.prefix}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.secure else 80
        return host if self.port == usual else f"{host}:{self.port}"

    def __repr__(self) -> str:  # keeps the token out of tracebacks and logs
        return f"Endpoint({self.url!r})"


def find_hub(workspace: Path | None = None, environ: Mapping[str, str] = os.environ) -> Endpoint:
    """Return the given workspace's hub, else AGENTLIP_URL, else the current workspace's."""
    if workspace is None and environ.get("AGENTLIP_URL"):
        return remote(environ)
    datadir = find_workspace(workspace)
    endpoint, _ = local(datadir, environ)
    return endpoint


def remote(environment: Mapping[str, str]) -> Endpoint:
    """Return the address in AGENTLIP_URL. Raises BadAddress."""
    text = environment["AGENTLIP_URL"]
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port
        (host or "").encode("idna")  # as the connection encodes the host
    except ValueError:
        raise BadAddress from None
    is_sendable = " " not in text and text.isprintable() and url.path.isascii()
    if url.scheme not in ("http", "https") or not host or url.username or not is_sendable:
        raise BadAddress
    secure = url.scheme == "https"
    return Endpoint(
        host=host,
        port=port or (443 if secure else 80),
        secure=secure,
        prefix=url.path.rstrip("/"),
        token=_token_from(environment),
    )


def endpoint_of(server: ServerFile, token: str | None = None) -> Endpoint:
    """Return the address for clients on this machine."""
    return Endpoint(ANY_ADDRESS.get(server.host, server.host), server.port, token=token)


def local(datadir: DataDir, environment: Mapping[str, str]) -> tuple[Endpoint, Health]:
    """Return this workspace's hub, verified by its database id."""
    server = datadir.read_server()
    if server is None or not server.port:
        try:
            datadir.server_file.open().close()
        except PermissionError:
            hint = f"ls -ld {shlex.quote(str(datadir.dir))}"
            raise Invalid(f"{datadir.server_file}: permission denied", hint=hint) from None
        except OSError:
            pass
        raise HubNotRunning(
            f"no hub is running: {datadir.server_file} does not exist",
            details={"searched": [str(datadir.server_file)]},
            hint=_start(datadir),
        )
    token = _token_from(environment) or server.auth_token or datadir.read_token()
    endpoint = endpoint_of(server, token)
    return endpoint, _prove(datadir, server, endpoint)


def _prove(datadir: DataDir, server: ServerFile, endpoint: Endpoint) -> Health:
    health = ask_health(endpoint)
    if health is None:
        raise HubNotRunning(
            f"no hub answers at {endpoint.url}, the address in {datadir.server_file}",
            details={"searched": [str(datadir.server_file), endpoint.url]},
            hint=_start(datadir),
        )
    view = read_lock(datadir)
    if server.app_version and not view.held and pid_alive(server.pid):
        raise StaleServerFile(
            f"{endpoint.url} serves the workspace that this is a copy of",
            hint=f"rm {shlex.quote(str(datadir.server_file))}; {_start(datadir)}",
        )
    if health.db_id and datadir.database("hub").is_file():
        with WorkspaceDatabase(datadir.database("hub")) as reader:
            same = health.db_id == reader.db_id
    else:
        same = view.held and (view.written is None or view.written.pid == server.pid)
    if not same:
        raise StaleServerFile(
            f"server.json is stale: {endpoint.url} serves another database",
            details={"searched": [str(datadir.server_file), endpoint.url]},
            hint=_start(datadir),
        )
    return health


def ask_health(endpoint: Endpoint) -> Health | None:
    """Return the response from `/health`, or None if no hub answers. Sends no token."""
    status, text = probe(replace(endpoint, token=None), "/health")
    if status == 200:
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(text, type=Health)
    return None


def ask_ready(endpoint: Endpoint) -> ReadyResponse:
    """Return the response from `/-/ready`. Another implementation without this route counts as
    ready."""
    status, text = probe(endpoint, "/-/ready")
    if status in (401, 403):  # without a token the response has fewer details
        status, text = probe(replace(endpoint, token=None), "/-/ready")
    if status == 404:
        return ReadyResponse(ready=True)
    if status in (200, 503):
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(text, type=ReadyResponse)
    return ReadyResponse()


def probe(
    endpoint: Endpoint, path: str, timeout: float = HEALTH_TIMEOUT_SECONDS
) -> tuple[int, bytes]:
    """Return status and body; status 0 if nothing answers."""
    try:
        return fetch(endpoint, path, timeout)
    except (OSError, http.client.HTTPException):
        return 0, b""


def fetch(
    endpoint: Endpoint, path: str, timeout: float, bytes_max: int = HEALTH_BYTES_MAX
) -> tuple[int, bytes]:
    """Return a GET's status and body, sent with the endpoint's token. Raises OSError and
    HTTPException."""
    headers = authorization(endpoint)
    with closing(connect(endpoint, timeout)) as connection:
        connection.request("GET", endpoint.prefix + path, headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.read(bytes_max)


def authorization(endpoint: Endpoint) -> dict[str, str]:
    """Return the header with the endpoint's token, if it has one. Raises Unauthenticated."""
    token = endpoint.token or ""
    if not (token.isascii() and (token + " ").isprintable()):
        raise Unauthenticated(
            "the token contains characters that no token has, such as typographic quotes",
            hint="copy the token again from AGENTLIP_TOKEN, AGENTLIP_TOKEN_FILE or .agentlip/token",
        )
    return {"Authorization": f"Bearer {token}"} if token else {}


def connect(endpoint: Endpoint, timeout: float) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if endpoint.secure else http.client.HTTPConnection
    return kind(endpoint.host, endpoint.port, timeout=timeout)


def _token_from(environment: Mapping[str, str]) -> str | None:
    """Return AGENTLIP_TOKEN, else the content of the file that AGENTLIP_TOKEN_FILE names. Empty
    variables are ignored."""
    token = environment.get("AGENTLIP_TOKEN", "").strip()
    if token:
        return token
    path = environment.get("AGENTLIP_TOKEN_FILE")
    return secret(path, "AGENTLIP_TOKEN_FILE") if path else None


def _start(datadir: DataDir) -> str:
    return f"agentlipd up --workspace {shlex.quote(str(datadir.workspace))}"
