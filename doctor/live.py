"""Facts about the running appliance: collected inside, or read over HTTP."""

import http.client
import sqlite3
from collections.abc import Iterable, Mapping

import msgspec

from appliance.kernel.errors import ApplianceError
from appliance.sdk import discovery
from appliance.workspace.datadir import DataDir, ServerFile

OFF = "off."
ASK_SECONDS_MAX = 5.0  # time limit for a running appliance's response
_BODY_BYTES_MAX = 1024 * 1024
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


class NotAnswering(Exception):
    """The appliance could not be reached; the text contains the reason."""


def facts(
    stores: Mapping[str, Mapping[str, float]],
    *,
    loop_delay_seconds: float,
    lock_intact: bool,
    stopping: bool = False,
) -> dict[str, float]:
    """Return facts for the checks, without subsystem facts.

    A store's facts come from `Store.facts()`, prefixed by the store's name:

    hub.writer_alive, hub.suspect, hub.writing_paused, hub.queue_jobs, hub.stalled_seconds, …
    """
    numbers = {
        "loop_delay_seconds": loop_delay_seconds,
        "lock_intact": float(lock_intact),
        "stopping": float(stopping),
    }
    for name, own in stores.items():
        numbers |= {f"{name}.{fact}": float(value) for fact, value in own.items()}
    return numbers


def facts_of_off(off: Iterable[str]) -> dict[str, float]:
    """Return facts that name disabled subsystems, for a doctor outside the process."""
    return {f"{OFF}{name}": 1.0 for name in off}


def off_of(numbers: Mapping[str, float]) -> frozenset[str]:
    return frozenset(name.removeprefix(OFF) for name in numbers if name.startswith(OFF))


def is_served_by_another(datadir: DataDir) -> bool:
    """Return whether another program's hub, which doesn't take the writer lock, serves this
    workspace's database at the address in `server.json`. An appliance at that address, which
    writes its version, serves the workspace that was copied here."""
    server = datadir.read_server()
    try:
        discovery.local(datadir, {})
    except (ApplianceError, OSError, sqlite3.Error):
        return False
    return server is not None and not server.app_version


def request_ready(
    datadir: DataDir, server: ServerFile, seconds_max: float
) -> discovery.ReadyResponse:
    """Request readiness from the appliance named in `server.json`. Raise NotAnswering on
    failure."""
    status, body = _get(datadir, server, "/-/ready", seconds_max)
    try:
        ready = msgspec.json.decode(body, type=discovery.ReadyResponse)
    except msgspec.DecodeError as error:
        raise NotAnswering(f"port {server.port} sent an unexpected response: {error}") from error
    if ready.instance_id and ready.instance_id != server.instance_id:
        raise NotAnswering(f"another instance responds on port {server.port}")
    if ready.facts is None:
        raise NotAnswering(f"port {server.port} returned {status} without details")
    return ready


def _get(datadir: DataDir, server: ServerFile, path: str, seconds_max: float) -> tuple[int, bytes]:
    """Return status and body. Requests go only to this machine's loopback."""
    endpoint = discovery.endpoint_of(server, datadir.read_token())
    if endpoint.host not in _LOOPBACK:
        raise NotAnswering(f"it listens on {endpoint.host}, which is not this machine's loopback")
    if not 0 < server.port < 65_536:
        raise NotAnswering("server.json has no port")
    try:
        return discovery.fetch(endpoint, path, seconds_max, _BODY_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        raise NotAnswering(f"port {server.port}: {error or type(error).__name__}") from error
