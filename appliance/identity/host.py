"""Fingerprints a machine by its id, or else by the network card's address.

The fingerprint is sha256 over id and card, joined by NUL. If both sides have an id, only the id is
compared, because network cards change (a dock, a random address) while the machine stays. In
containers the card is ignored, because the address is random at each start.
"""

import hashlib
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from appliance.identity.mode import SHORT_LIVED_VARIABLES
from appliance.kernel.ownership import read_small

_IDS = ("etc/machine-id", "var/lib/dbus/machine-id", "etc/hostid")
_VIRTUAL = re.compile(
    r"lo\d*|docker.*|br-.*|veth.*|tap.*|tun.*|tailscale.*|wg.*|utun.*|ppp.*|vboxnet.*"
    r"|vmnet.*|awdl.*|llw.*"
)
_ID = re.compile(r"[0-9A-Fa-f-]{16,64}")
_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
_CARDS_MAX = 1000

HOST_ID_MISSING = "fingerprint_host_id_unavailable"
UNAVAILABLE = "fingerprint_unavailable"
HostMatch = Literal["same", "other", "unknown"]


class HostFingerprint(msgspec.Struct, frozen=True):
    """The stored form: hashes only, so that the file doesn't reveal the machine's id.

    notice  code of the reason why it is weak, or empty; `told` in the file
    """

    fingerprint: str
    host_id_sha256: str | None
    card_sha256: str | None
    notice: str = msgspec.field(name="told", default="")
    schema_version: int = 1


def measure(environment: Mapping[str, str], root: Path = Path("/")) -> HostFingerprint:
    """Return this machine's fingerprint; `root` is its file system's root."""
    machine_id = host_id(root)
    card = None if in_container(environment, root) else stable_card(root)
    if machine_id is None and card is None:
        return HostFingerprint(_hash(secrets.token_hex(16)), None, None, UNAVAILABLE)
    return HostFingerprint(
        _hash(f"{machine_id or ''}\0{card or ''}"),
        None if machine_id is None else _hash(machine_id),
        None if card is None else _hash(card),
        HOST_ID_MISSING if machine_id is None else "",
    )


def compare(stored: HostFingerprint | None, current: HostFingerprint) -> HostMatch:
    """Compare two fingerprints. `unknown`: one side has nothing to compare, which does not mean
    a copy."""
    if stored is None:
        return "unknown"
    if stored.host_id_sha256 and current.host_id_sha256:
        return "same" if stored.host_id_sha256 == current.host_id_sha256 else "other"
    if stored.card_sha256 and current.card_sha256:
        return "same" if stored.card_sha256 == current.card_sha256 else "other"
    return "unknown"


def host_id(root: Path) -> str | None:
    for name in _IDS:
        text = _text(root / name)
        # systemd writes `uninitialized` into images that were never booted.
        if text and _ID.fullmatch(text):
            return text.lower()
    return None


def stable_card(root: Path) -> str | None:
    """Return the first physical network card's address, by name; None without a card."""
    try:
        names = sorted(entry.name for entry in (root / "sys/class/net").iterdir())
    except OSError:
        return None
    for name in names[:_CARDS_MAX]:
        if _VIRTUAL.fullmatch(name):
            continue
        address = _text(root / "sys/class/net" / name / "address").lower()
        if _MAC.fullmatch(address) and address != "00:00:00:00:00:00":
            return address
    return None


def in_container(environment: Mapping[str, str], root: Path) -> bool:
    if environment.get(SHORT_LIVED_VARIABLES[-1]) or environment.get("container"):
        return True
    if any((root / name).exists() for name in (".dockerenv", "run/.containerenv")):
        return True
    groups = _text(root / "proc/1/cgroup")
    return any(word in groups for word in ("docker", "kubepods", "containerd", "libpod"))


def _text(path: Path) -> str:
    return (read_small(path) or b"").decode("ascii", "replace").strip()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
