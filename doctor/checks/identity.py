"""Checks of the member key: private files, a readable key, the same machine."""

import os
import stat
from collections.abc import Iterator

import msgspec

from appliance.identity import host
from appliance.identity.host import HostFingerprint
from appliance.identity.settings import IdentitySettings
from appliance.kernel import config
from appliance.kernel.config import BadSettings
from doctor.check import Check, Finding, Problem, Severity
from doctor.context import Context

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
                f"other users of this machine can access the member key (mode {mode:04o})",
                f"chmod go= {path}",
                problem="too-open",
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
            "the file can't be read, so the appliance will not start again",
            "restore it from a backup, or make a new key: agentlip identity remint --yes",
            problem="invalid",
        )
    if (path.parent / "keypair-next.json").exists():
        yield Finding(
            Severity.WARNING,
            "keypair-next.json",
            "a rotation of the member key is unfinished",
            "agentlip identity rotate",
            problem="unfinished-rotation",
        )


def _machine(context: Context) -> Iterator[Finding]:
    path = context.datadir.dir / FOLDER / "host_fingerprint.json"
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=HostFingerprint)
        settings = config.load(_Section, context.datadir.settings_file, os.environ).identity
    except (OSError, msgspec.DecodeError, BadSettings):
        return
    if host.compare(stored, host.measure(settings.host_id, os.environ)) == "other":
        yield Finding(
            Severity.WARNING,
            "host",
            "the member key was made on another machine; this workspace may be a copy",
            _ACCEPT,
            problem="other-machine",
        )


CHECKS = (
    Check(
        name="identity.private",
        inspects="only the owner can read the member key",
        find=_private,
        reads="the modes of `.agentlip/identity` and its files",
        problems=(
            Problem(
                "too-open",
                "Other users of this machine can read the member key, and send as this appliance.",
                "Remove the permission: `chmod go= FILE`.",
            ),
        ),
    ),
    Check(
        name="identity.keypair",
        inspects="the member key can be read",
        find=_keypair,
        reads="`.agentlip/identity/keypair.json` and `keypair-next.json`",
        problems=(
            Problem(
                "invalid",
                "The member key can't be decoded. The appliance will not start again.",
                "Put a copy back, or make a new key, which brokers don't know: `agentlip identity"
                " remint --yes`.",
            ),
            Problem(
                "unfinished-rotation",
                "A rotation of the member key was interrupted. The old key is still in use.",
                "Finish it: `agentlip identity rotate`.",
            ),
        ),
    ),
    Check(
        name="identity.machine",
        inspects="the member key was made on this machine",
        find=_machine,
        reads="`.agentlip/identity/host_fingerprint.json` and this machine's own",
        problems=(
            Problem(
                "other-machine",
                "The workspace may be a copy. Two appliances with the same key disturb each other.",
                "If the workspace moved: `agentlip identity accept-host`. If it is a copy:"
                " `agentlip identity remint --yes`.",
            ),
        ),
    ),
)
