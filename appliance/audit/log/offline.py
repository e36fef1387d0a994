"""Records commands' changes to a workspace without the appliance."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from appliance.audit.log.commands import ALWAYS, CURRENT, CurrentCommand
from appliance.audit.log.file import STORE, AuditUnavailable, file_in
from appliance.audit.log.trail import AuditTrail
from appliance.kernel.clock import SystemClock
from appliance.kernel.ownership import user_name
from appliance.workspace import epochs, manifest
from appliance.workspace.datadir import STORES, DataDir, WorkspaceNotFound, discover, marks_of


class RecordedCommand(CurrentCommand):
    def __init__(self, command: str, workspace: Path | None, given: Mapping[str, Any]) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.datadir = _find(workspace)
        self._command = command
        self._given = {name: value for name, value in given.items() if value not in (None, False)}

    def begin(self) -> None:
        """Record the beginning. Raises AuditUnavailable or StorageFull; then nothing may be
        done."""
        if self.datadir is None or os.statvfs(self.datadir.dir).f_flag & os.ST_RDONLY:
            return  # nothing can be changed
        path = file_in(self.datadir.workspace)
        trail = AuditTrail(path, SystemClock(), lambda function, *args: function(*args))
        actor, before = f"user:{user_name(os.geteuid())}", facts_of(self.datadir)
        act = trail.record(self._command, actor, "cli", request=self._given, before=before)
        try:
            self.outcome = self.stack.enter_context(act)
        except AuditUnavailable:
            if self._given.get("store") != STORE:  # else it repairs the log
                raise


@contextmanager
def record_command(
    command: str, workspace: Path | None, given: Mapping[str, Any]
) -> Iterator[None]:
    """Record the block: an act in ALWAYS at once, one in WHILE_STOPPED when it opens a store."""
    act = RecordedCommand(command, workspace, given)
    token = CURRENT.set(act)
    try:
        with act.stack:
            if command in ALWAYS:
                act.begin()
            try:
                yield
            finally:
                act.outcome["after"] = act.datadir and facts_of(act.datadir)
    finally:
        CURRENT.reset(token)


def facts_of(datadir: DataDir) -> dict[str, Any]:
    """Return the whole workspace's state, which a restore, a repair or a migration changes."""
    sizes = {store: datadir.store_bytes(store) for store in STORES}
    epoch = manifest.value_in_record(datadir, epochs.KEY)
    return {"epoch": epoch, "store_bytes": {store: size for store, size in sizes.items() if size}}


def _find(workspace: Path | None) -> DataDir | None:
    with suppress(WorkspaceNotFound, PermissionError):
        datadir = discover(Path.cwd()) if workspace is None else DataDir(workspace.expanduser())
        return datadir if marks_of(datadir) else None
    return None
