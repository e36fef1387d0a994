"""What the running appliance says of itself: as numbers inside it, over HTTP from outside."""

import http.client
from collections.abc import Iterable, Mapping

import msgspec

from appliance.kernel.datadir import DataDir, ServerFile

PATH = "/-/ready"
OFF = "off."
_BODY_BYTES_MAX = 1024 * 1024
_ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


class Ready(msgspec.Struct, frozen=True):
    """What the doctor reads of `/-/ready`. Facts only for who may see details."""

    instance_id: str = ""
    facts: dict[str, float] | None = None


class NotAnswering(Exception):
    """Why the appliance could not be asked, as a sentence."""


def facts(
    stores: Mapping[str, Mapping[str, float]],
    parts: Mapping[str, Mapping[str, float]] = {},
    *,
    loop_delay_seconds: float,
    lock_intact: bool,
    stopping: bool = False,
) -> dict[str, float]:
    """The numbers checks know. A store's own come from `Store.facts()`, prefixed by its name:

    hub.writer_alive, hub.suspect, hub.writing_paused, hub.queue_jobs, hub.stalled_seconds, …

    What a subsystem says of itself is prefixed likewise.
    """
    numbers = {
        "loop_delay_seconds": loop_delay_seconds,
        "lock_intact": float(lock_intact),
        "stopping": float(stopping),
    }
    for name, own in (*stores.items(), *parts.items()):
        numbers |= {f"{name}.{fact}": float(value) for fact, value in own.items()}
    return numbers


def facts_of_off(off: Iterable[str]) -> dict[str, float]:
    """Subsystems that are switched off, for a doctor that does not know the settings in force."""
    return {f"{OFF}{name}": 1.0 for name in off}


def off_of(numbers: Mapping[str, float]) -> frozenset[str]:
    return frozenset(name.removeprefix(OFF) for name in numbers if name.startswith(OFF))


def ask(datadir: DataDir, server: ServerFile, seconds_max: float) -> Ready:
    """Asks the appliance that `server.json` speaks of. Only ever on this machine's loopback."""
    host = _ANY_HOST.get(server.host, server.host)
    if host not in _LOOPBACK:
        raise NotAnswering(f"it listens on {host}, which is not this machine's loopback")
    if not 0 < server.port < 65_536:
        raise NotAnswering("server.json names no port")
    try:
        status, body = _get(datadir, host, server.port, seconds_max)
        ready = msgspec.json.decode(body, type=Ready)
    except (OSError, http.client.HTTPException) as error:
        raise NotAnswering(f"port {server.port}: {error or type(error).__name__}") from error
    except msgspec.DecodeError as error:
        raise NotAnswering(f"port {server.port} answers something else: {error}") from error
    if ready.instance_id and ready.instance_id != server.instance_id:
        raise NotAnswering(f"another instance answers on port {server.port}")
    if ready.facts is None:
        raise NotAnswering(f"port {server.port} answers {status} without details")
    return ready


def _get(datadir: DataDir, host: str, port: int, seconds_max: float) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=seconds_max)
    token = datadir.read_token()
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", PATH, headers=headers)
        response = connection.getresponse()
        return response.status, response.read(_BODY_BYTES_MAX)
    finally:
        connection.close()
