"""Which workspace is meant, which hub serves it, and the token it wants.

`server.json` is only a hint: the hub it names is asked for `/health`, and what answers
must hold this workspace's database before the token is shown to it.
"""

import http.client
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from appliance.kernel.config import secret
from appliance.kernel.datadir import (
    DataDir,
    ServerFile,
    WorkspaceNotFound,
    discover,
    look_at_lock,
)
from appliance.kernel.errors import Invalid, Unavailable
from appliance.sdk.reader import Reader

HEALTH_TIMEOUT_SECONDS = 5.0
HEALTH_BYTES_MAX = 65_536
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}


class HubNotRunning(Unavailable):
    code = "HUB_NOT_RUNNING"
    sentence = "no hub is running"
    advice = "start one with 'agentlipd up'"


class StaleServerFile(Unavailable):
    code = "STALE_SERVER_FILE"
    sentence = "stale server.json: what it names is not this workspace's hub"
    advice = "start this workspace's hub with 'agentlipd up'"


class BadAddress(Invalid):
    code = "BAD_ADDRESS"
    sentence = "AGENTLIP_URL must look like http://127.0.0.1:7464 or https://hub.example.org"
    advice = "export AGENTLIP_URL=http://127.0.0.1:7464, or unset it to use the workspace here"


class Health(msgspec.Struct, frozen=True):
    """What `/health` says; details may be missing when asked from afar."""

    status: str = "ok"
    instance_id: str = ""
    db_id: str = ""
    schema_version: int = 0
    protocol_version: str = ""
    uptime_seconds: float = 0.0
    pid: int = 0
    epoch: str = ""


class ReadyFinding(msgspec.Struct, frozen=True):
    """One finding of `/-/ready`."""

    severity: str = ""
    check: str = ""
    subject: str = ""
    sentence: str = ""
    hint: str = ""


class Ready(msgspec.Struct, frozen=True):
    """What `/-/ready` answers; `findings` may be missing when asked from afar."""

    ready: bool = False
    failing: list[str] = []
    findings: list[ReadyFinding] | None = None

    @property
    def critical(self) -> list[ReadyFinding]:
        """The findings that make the hub not ready."""
        return [each for each in self.findings or () if each.severity == "critical"]


class Endpoint(msgspec.Struct, frozen=True):
    """Where a hub listens, and the token for it."""

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

    def __repr__(self) -> str:  # a token must not get into a log by way of a traceback
        return f"Endpoint({self.url!r})"


def find_workspace(explicit: Path | None, start: Path | None = None) -> DataDir:
    """The workspace named, or else the nearest one from `start` upwards."""
    if explicit is None:
        return discover(start or Path.cwd())
    datadir = DataDir(explicit.expanduser().resolve())
    try:
        present = datadir.database("hub").is_file()
    except PermissionError:
        present = True  # the reader will say what may not be read
    if not present:
        raise WorkspaceNotFound(
            f"no workspace in {datadir.workspace}",
            details={"searched": [str(datadir.workspace)]},
            hint=f"make one with 'agentlip init --workspace {datadir.workspace}'",
        )
    return datadir


def find_hub(workspace: Path | None, environment: Mapping[str, str] = os.environ) -> Endpoint:
    """The hub to talk to: a workspace named, else AGENTLIP_URL, else the workspace here."""
    if workspace is None and environment.get("AGENTLIP_URL"):
        return remote(environment)
    datadir = find_workspace(workspace)
    endpoint, _ = local(datadir, environment)
    return endpoint


def remote(environment: Mapping[str, str]) -> Endpoint:
    try:
        parts = urlsplit(environment["AGENTLIP_URL"])
        port = parts.port
    except ValueError:
        raise BadAddress from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise BadAddress
    secure = parts.scheme == "https"
    return Endpoint(
        host=parts.hostname,
        port=port or (443 if secure else 80),
        secure=secure,
        prefix=parts.path.rstrip("/"),
        token=_token_from(environment),
    )


def local(datadir: DataDir, environment: Mapping[str, str]) -> tuple[Endpoint, Health]:
    """The hub of this workspace, after it proved that it is."""
    server = datadir.read_server()
    if server is None or not server.port:
        raise HubNotRunning(
            f"no hub is running: looked for {datadir.server_file}",
            details={"searched": [str(datadir.server_file)]},
            hint=_start(datadir),
        )
    host = ANY_ADDRESS.get(server.host, server.host)
    endpoint = Endpoint(
        host=host,
        port=server.port,
        token=_token_from(environment) or server.auth_token or datadir.read_token(),
    )
    return endpoint, _prove(datadir, server, endpoint)


def _prove(datadir: DataDir, server: ServerFile, endpoint: Endpoint) -> Health:
    health = ask_health(endpoint)
    if health is None:
        raise HubNotRunning(
            f"no hub answers at {endpoint.url}, which {datadir.server_file} names",
            details={"searched": [str(datadir.server_file), endpoint.url]},
            hint=_start(datadir),
        )
    if health.db_id:
        with Reader(datadir.database("hub")) as reader:
            same = health.db_id == reader.db_id
    else:
        view = look_at_lock(datadir)
        same = view.held and (view.written is None or view.written.pid == server.pid)
    if not same:
        raise StaleServerFile(
            f"stale server.json: {endpoint.url} serves another database",
            details={"searched": [str(datadir.server_file), endpoint.url]},
            hint=_start(datadir),
        )
    return health


def ask_health(endpoint: Endpoint, timeout: float = HEALTH_TIMEOUT_SECONDS) -> Health | None:
    """The answer of `/health` there, or None if nothing like a hub answers. Sends no token."""
    status, text = _probe(endpoint, "/health", {}, timeout)
    try:
        return msgspec.json.decode(text, type=Health) if status == 200 else None
    except msgspec.DecodeError:
        return None


def ask_ready(endpoint: Endpoint, timeout: float = HEALTH_TIMEOUT_SECONDS) -> Ready:
    """The answer of `/-/ready`. A hub that has no such route, being another's, is ready."""
    given = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
    status, text = _probe(endpoint, "/-/ready", given, timeout)
    if status in (401, 403):  # a token that is refused; without one the answer is shorter
        status, text = _probe(endpoint, "/-/ready", {}, timeout)
    if status == 404:
        return Ready(ready=True)
    try:
        return msgspec.json.decode(text, type=Ready) if status in (200, 503) else Ready()
    except msgspec.DecodeError:
        return Ready()


def _probe(
    endpoint: Endpoint, path: str, headers: dict[str, str], timeout: float
) -> tuple[int, bytes]:
    """Status and body; 0 if nothing answers."""
    connection = connect(endpoint, timeout)
    try:
        connection.request("GET", endpoint.prefix + path, headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.read(HEALTH_BYTES_MAX)
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


def connect(endpoint: Endpoint, timeout: float) -> http.client.HTTPConnection:
    if endpoint.secure:
        return http.client.HTTPSConnection(endpoint.host, endpoint.port, timeout=timeout)
    return http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=timeout)


def _token_from(environment: Mapping[str, str]) -> str | None:
    """AGENTLIP_TOKEN, else the text of AGENTLIP_TOKEN_FILE. An empty variable is none."""
    token = environment.get("AGENTLIP_TOKEN", "").strip()
    if token:
        return token
    path = environment.get("AGENTLIP_TOKEN_FILE")
    return secret(path) if path else None


def _start(datadir: DataDir) -> str:
    return f"start one with 'agentlipd up --workspace {datadir.workspace}'"
