"""Writes appliance/declared_paths.py: the beginnings of each subsystem's routes and sockets, so
that requests are refused with the reason while a role is off. The paths come from an appliance
with all roles in a temporary workspace. Run it after `ops.write_declared`: `just settings`.

A test compares.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from pathlib import Path

from appliance.app import Appliance
from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.roles import RolesSettings
from appliance.settings import Settings
from appliance.workspace import schema
from appliance.workspace.datadir import DataDir, WriterLock
from ops import generated
from ops.size import GENERATED
from ops.write_declared import format_code

FILE = "appliance/declared_paths.py"
ALL_ROLES = RolesSettings(**dict.fromkeys(RolesSettings.__struct_fields__, True))


def render() -> dict[str, str]:
    """Render the file's text, by its path from the root folder."""
    with whole_appliance() as whole:
        mounted = {
            part.name: [route.path for route in (*part.routes(), *part.sockets())]
            for part in whole.subsystems
        }
    text = f'{GENERATED} the routes of the subsystems: `just settings`."""\nPATHS ='
    return {FILE: format_code(f"{text} {beginnings(mounted)}")}


@contextmanager
def whole_appliance() -> Iterator[Appliance]:
    """Yield an appliance with all roles, in a temporary workspace."""
    clock, log = SystemClock(), Log(sys.stderr.buffer, level="error")
    with tempfile.TemporaryDirectory() as folder:
        datadir = DataDir(Path(folder))
        schema.create_workspace(datadir, clock=clock, log=log)
        with WriterLock(datadir, "docs", clock) as lock, ExitStack() as stack:
            whole = Appliance(Settings(roles=ALL_ROLES), lock, log)
            stack.callback(whole.stop)
            yield whole


def beginnings(mounted: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """Return the beginnings of each name's paths: each is the shortest that no other name has."""
    counted = Counter(
        start
        for paths in mounted.values()
        for start in {start for path in paths for start in _beginnings_of(path)}
    )
    return {
        name: tuple(sorted({
            next((start for start in _beginnings_of(path) if counted[start] == 1), path)
            for path in paths
        }))
        for name, paths in mounted.items() if paths
    }  # fmt: skip


def _beginnings_of(path: str) -> list[str]:
    return list(accumulate(path.split("/"), "{}/{}".format))


if __name__ == "__main__":
    sys.exit(generated.write(render()))
