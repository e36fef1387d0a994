"""Reads a harness's version, and refuses one whose files and events are not known."""

import re
import shutil
import subprocess

from appliance.hub.agents.hooks.harnesses import Harness, Version
from appliance.kernel.errors import Conflict

SECONDS_MAX = 10.0
_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})")


class HarnessVersionUnknown(Conflict):
    code = "HARNESS_VERSION_UNKNOWN"
    default_message = "unknown harness version"
    default_hint = "agentlip agent hooks install HARNESS --print shows the entries to add by hand"


def check_version(harness: Harness) -> str | None:
    """Return the installed version; None if its command is not on the PATH. Raises
    HarnessVersionUnknown, which names the expected versions."""
    program = shutil.which(harness.program)
    if program is None:
        return None
    first, end = map(_text, harness.versions)
    expected = f"expected {first} or newer, below {end}"
    match = _VERSION.search(_output(program))
    if match is None:
        raise HarnessVersionUnknown(f"{harness.program} --version names no version: {expected}")
    version: Version = (int(match[1]), int(match[2]), int(match[3]))
    if not harness.versions[0] <= version < harness.versions[1]:
        raise HarnessVersionUnknown(f"{harness.program} {match[0]} is not known: {expected}")
    return match[0]


def _output(program: str) -> str:
    try:
        done = subprocess.run(
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout[:1000]


def _text(version: Version) -> str:
    return ".".join(map(str, version))
