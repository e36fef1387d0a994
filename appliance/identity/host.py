"""By what a machine is known again: its id, else its network card; never its name or boot.

The fingerprint is sha256 over host id and card, joined by NUL. Compared is what stays: with
an id on both sides the id alone decides, for cards change (a dock, a random address) while
the machine does not. Containers have cards drawn at each start, so there a card means nothing.
"""

import hashlib
import re
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from appliance.identity.mode import PASSING

_LINUX_IDS = ("etc/machine-id", "var/lib/dbus/machine-id")
_BSD_IDS = ("etc/hostid",)
_VIRTUAL = re.compile(
    r"lo\d*|docker.*|br-.*|veth.*|tap.*|tun.*|tailscale.*|wg.*|utun.*|ppp.*|vboxnet.*"
    r"|vmnet.*|awdl.*|llw.*"
)
_ID = re.compile(r"[0-9A-Fa-f-]{16,64}")
_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
_ID_BYTES_MAX = 256
_CARDS_MAX = 1000

HOST_ID_MISSING = "fingerprint_host_id_unavailable"
UNAVAILABLE = "fingerprint_unavailable"
Verdict = Literal["same", "moved_card", "other", "unknown"]


class Fingerprint(msgspec.Struct, frozen=True):
    """As it is stored: hashes only, so the file tells nobody the machine's id.

    told  why it is weaker than it could be; empty when it is not
    """

    fingerprint: str
    host_id_sha256: str | None
    card_sha256: str | None
    told: str = ""
    schema_version: int = 1


def measure(
    override: str | None, environment: Mapping[str, str], root: Path = Path("/")
) -> Fingerprint:
    """The fingerprint of this machine; `root` is where its files are looked for."""
    id_ = override or host_id(root)
    card = None if in_container(environment, root) else stable_card(root)
    if id_ is None and card is None:
        return Fingerprint(_hash(secrets.token_hex(16)), None, None, UNAVAILABLE)
    return Fingerprint(
        _hash(f"{id_ or ''}\0{card or ''}"),
        None if id_ is None else _hash(id_),
        None if card is None else _hash(card),
        HOST_ID_MISSING if id_ is None else "",
    )


def compare(stored: Fingerprint, here: Fingerprint) -> Verdict:
    """`unknown`: one side has nothing to compare by, which is no sign of a copy."""
    if stored.host_id_sha256 and here.host_id_sha256:
        if stored.host_id_sha256 != here.host_id_sha256:
            return "other"
        return "same" if stored.card_sha256 == here.card_sha256 else "moved_card"
    if stored.card_sha256 and here.card_sha256:
        return "same" if stored.card_sha256 == here.card_sha256 else "other"
    return "unknown"


def host_id(root: Path) -> str | None:
    for name in _LINUX_IDS if sys.platform == "linux" else _BSD_IDS:
        text = _text(root / name)
        # systemd writes `uninitialized` into images that have never been started.
        if text and _ID.fullmatch(text):
            return text.lower()
    return None


def stable_card(root: Path) -> str | None:
    """The address of the first real card by name; None without one."""
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
    if environment.get(PASSING[-1]) or environment.get("container"):
        return True
    if any((root / name).exists() for name in (".dockerenv", "run/.containerenv")):
        return True
    groups = _text(root / "proc/1/cgroup")
    return any(word in groups for word in ("docker", "kubepods", "containerd", "libpod"))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_ID_BYTES_MAX).decode("ascii", "replace").strip()
    except OSError:
        return ""


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
