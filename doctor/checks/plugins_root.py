"""Checks of the settings of plugins, also while nothing runs: no plugin will keep root."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from appliance.checks.check import Check, Finding, Problem
from appliance.checks.context import Context
from appliance.checks.sections import section
from appliance.hub.plugins.settings import PluginsSettings

ROOT = 0


def _root(context: Context) -> Iterator[Finding]:
    """While the appliance runs, plugins.isolation reports what was tested at their start."""
    settings = section(context.datadir.settings_file, "plugins", PluginsSettings)
    if settings is None:
        return
    added = [own for own in settings.use if own.enabled]
    as_root = os.geteuid() == ROOT and _owner(context) == ROOT
    if not (settings.enabled and added and as_root) or context.lock().held:
        return
    if settings.uid == ROOT:
        why = "the setting plugins.uid is 0"
        hint = "remove plugins.uid from agentlip.toml, or give the id of a user without rights"
    elif not _readable(Path(os.__file__), settings.uid, settings.gid):
        why = f"user {settings.uid} (plugins.uid) can't read this Python"
        hint = "use a Python outside of root's home: rm -r .venv; PYTHON=/usr/bin/python3 ops/env"
    else:
        return
    for own in added:
        yield AS_ROOT.finding(
            f"plugin {own.name}", f"its process will run as root, because {why}", hint
        )


def _owner(context: Context) -> int:
    return context.datadir.dir.stat().st_uid


def _readable(path: Path, uid: int, gid: int) -> bool:
    """Whether the modes let that user enter every directory of the path, and read the file."""
    steps = [(folder, stat.S_IXOTH) for folder in path.resolve().parents]
    for step, right in (*steps, (path, stat.S_IROTH)):
        state = step.stat()
        shift = 6 if state.st_uid == uid else 3 if state.st_gid == gid else 0
        if not state.st_mode >> shift & right:
            return False
    return True


AS_ROOT = Problem(
    "root",
    "The code of a plugin could change everything on this machine.",
    "Let plugins run as a user without rights who can read the Python of the appliance.",
)
CHECKS = (
    Check(
        name="plugins.root",
        inspects="by the settings, no plugin will run as root",
        find=_root,
        reads="the section [plugins], and the mode of this Python; as root, if no appliance runs",
        problems=(AS_ROOT,),
    ),
)
