"""Checks whether the member key is readable, and made on this machine."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from appliance.checks.cause import Cause
from appliance.checks.check import Check, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.checks.sections import section
from appliance.identity import host
from appliance.identity.host import HostFingerprint
from appliance.identity.mode import choose
from appliance.identity.settings import IdentitySettings
from appliance.identity.wire import KeysDamaged
from appliance.kernel.json_file import read_json
from appliance.kernel.ownership import read_regular
from appliance.workspace import manifest

FOLDER = "identity"
SECRETS = ("keypair.json", "keypair-next.json", "keypair-archive.json", "host_fingerprint.json")
_FILE_BYTES_MAX = 256 * 1024
_ACCEPT = "agentlip identity accept-host # for a copy: agentlip identity remint --yes"


def _keypair(context: Context) -> Iterator[Finding]:
    for name in SECRETS:
        path = context.datadir.dir / FOLDER / name
        if path.exists() and not path.is_file():
            there = shlex.quote(str(path))
            yield NOT_A_FILE.finding(
                name,
                "it is not a file, so the appliance will not start again",
                f"mv {there} {there}.aside",
            )
            return
    path = context.datadir.dir / FOLDER / "keypair.json"
    if not path.exists():
        if _is_needed(context):
            lost = manifest.StoreLost(manifest.IDENTITY)
            yield MISSING.finding(path.name, lost.message, lost.hint)
        return
    if not _is_key(path):
        yield INVALID.finding(
            path.name,
            "the file is malformed or mixes two keys, so the appliance will not start again",
        )
    if (path.parent / "keypair-next.json").exists():
        yield UNFINISHED_ROTATION.finding(
            "keypair-next.json", "a member key rotation is unfinished"
        )


def _is_needed(context: Context) -> bool:
    """Return whether the next start refuses to make another key."""
    settings = section(context.datadir.settings_file, "identity", IdentitySettings)
    if settings is None:
        return False
    persistent = choose(settings.mode, os.environ).mode == "persistent"
    return persistent and manifest.IDENTITY in manifest.read(context.datadir).stores


def _is_key(path: Path) -> bool:
    try:
        from appliance.identity import keys  # not installed everywhere
    except ImportError:
        return True
    try:
        keys.read_keys(read_regular(path, _FILE_BYTES_MAX))
    except (KeysDamaged, OSError):
        return False
    return True


def _machine(context: Context) -> Iterator[Finding]:
    path = context.datadir.dir / FOLDER / "host_fingerprint.json"
    stored = read_json(path, HostFingerprint, _FILE_BYTES_MAX)
    settings = section(context.datadir.settings_file, "identity", IdentitySettings)
    if stored is None or settings is None:
        return
    if host.compare(stored, host.measure(os.environ)) == "other":
        yield OTHER_MACHINE.finding(
            "host", "the member key was made on another machine; this workspace may be a copy"
        )


MISSING = Problem("missing", Severity.ERROR)
INVALID = Problem(
    "invalid",
    Severity.ERROR,
    hint="restore it from a backup, or make a new key: agentlip identity remint --yes",
)
NOT_A_FILE = Problem("not-a-file", Severity.ERROR)
UNFINISHED_ROTATION = Problem("unfinished-rotation", hint="agentlip identity rotate")
OTHER_MACHINE = Problem("other-machine", hint=_ACCEPT)
CAUSES = (Cause("host.owner:other-user", ("identity.keypair:*",)),)

CHECKS = (
    Check(
        name="identity.keypair", inspects="the member key can be read", find=_keypair,
        problems=(MISSING, INVALID, NOT_A_FILE, UNFINISHED_ROTATION),
    ),
    Check(
        name="identity.machine", inspects="the member key was made on this machine", find=_machine,
        problems=(OTHER_MACHINE,),
    ),
)  # fmt: skip
