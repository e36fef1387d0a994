"""The member key: its files are private, and this machine is the one it was made on."""

import os
import stat
from collections.abc import Iterator

import msgspec

from appliance.identity import host
from appliance.identity.host import Fingerprint
from appliance.identity.settings import IdentitySettings
from appliance.kernel import config
from appliance.kernel.config import BadSettings
from doctor.check import Check, Context, Finding, Severity

FOLDER = "identity"
_ACCEPT = "agentlip identity accept-host, or for a copy: agentlip identity remint --yes"


class _Section(msgspec.Struct, frozen=True):
    identity: IdentitySettings = IdentitySettings()


def _private(context: Context) -> Iterator[Finding]:
    folder = context.datadir.dir / FOLDER
    if not folder.is_dir():
        return
    for path in (folder, *sorted(folder.iterdir())):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            yield Finding(
                Severity.WARNING,
                path.name,
                f"others on this machine may get at the member key (mode {mode:04o})",
                f"chmod go= {path}",
            )


def _keypair(context: Context) -> Iterator[Finding]:
    path = context.datadir.dir / FOLDER / "keypair.json"
    if not path.exists():
        return
    try:
        stored = msgspec.json.decode(path.read_bytes())
        whole = isinstance(stored, dict) and len(bytes.fromhex(stored["ed25519_seed"])) == 32
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        yield Finding(
            Severity.ERROR,
            path.name,
            "it can't be read, so the appliance will not start again",
            "put it back from a backup, or make another key: agentlip identity remint --yes",
        )
    if (path.parent / "keypair-next.json").exists():
        yield Finding(
            Severity.WARNING,
            "keypair-next.json",
            "a rotation of the member key is unfinished",
            "agentlip identity rotate",
        )


def _machine(context: Context) -> Iterator[Finding]:
    path = context.datadir.dir / FOLDER / "host_fingerprint.json"
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=Fingerprint)
        settings = config.load(_Section, context.datadir.settings_file, os.environ).identity
    except (OSError, msgspec.DecodeError, BadSettings):
        return
    if host.compare(stored, host.measure(settings.host_id, os.environ)) == "other":
        yield Finding(
            Severity.WARNING,
            "host",
            "the member key was made on another machine: is this workspace a copy?",
            _ACCEPT,
        )


CHECKS = (
    Check(name="identity.private", inspects="the member key is for its owner alone", find=_private),
    Check(name="identity.keypair", inspects="the member key can be read", find=_keypair),
    Check(
        name="identity.machine", inspects="the member key was made on this machine", find=_machine
    ),
)
