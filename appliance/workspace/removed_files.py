"""Files of stores that were removed while a process has them open (Linux).

Their content is there until that process ends, and can be read in `/proc`. Nothing is written to
them meanwhile: the store refuses writes (`store_files.py`).
"""

import os
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from appliance.kernel.errors import Conflict
from appliance.kernel.ownership import open_own
from appliance.kernel.store_declaration import file_of
from appliance.workspace.datadir import STORES, DataDir, read_lock
from appliance.workspace.open_files import open_files

_REMOVED = " (deleted)"  # how the system names an open file that has no name any more
_LOG = "-wal"


class StoreRemoved(Conflict):
    code = "STORE_REMOVED"
    default_message = "a store was removed while it is in use, and is lost when the appliance stops"
    default_hint = "agentlip backup create; agentlipd down --accept-loss STORE"

    def __init__(self, stores: Sequence[str]) -> None:
        flags = "".join(f" --accept-loss {store}" for store in stores)
        super().__init__(
            f"{', '.join(stores)}: the file was removed while it is in use, so its content is lost"
            " when the appliance stops",
            details={"stores": list(stores)},
            hint=f"agentlip backup create; agentlipd down{flags};"
            " agentlip backup restore --latest --yes; agentlipd up",
        )


def find(datadir: DataDir) -> dict[str, dict[str, Path]]:
    """The open files of stores that the running appliance would lose at its end: by store, and by
    "" for the database and `-wal` for its log. A removed log alone is written back at the end."""
    view = read_lock(datadir)
    pid = view.written.pid if view.held and view.written else 0
    folder = datadir.dir.resolve()
    names = {
        f"{folder / file_of(store)}{name}": (store, suffix)
        for store in STORES
        for name, suffix in ((_REMOVED, ""), (_LOG, _LOG), (_LOG + _REMOVED, _LOG))
    }
    removed: dict[str, dict[str, Path]] = {}
    for descriptor, name in open_files(Path(f"/proc/{pid}")):
        if name in names:
            store, suffix = names[name]
            removed.setdefault(store, {})[suffix] = descriptor
    return {store: files for store, files in removed.items() if "" in files}


def check(datadir: DataDir, accepted: Collection[str]) -> None:
    """Call before the appliance is stopped. Raises StoreRemoved unless accepted."""
    if lost := sorted(find(datadir).keys() - set(accepted)):
        raise StoreRemoved(lost)


def copy(datadir: DataDir, removed: dict[str, dict[str, Path]], folder: Path) -> DataDir:
    """The same workspace with copies of these files in `folder`. Raises OSError.

    The log is copied first: pages that are moved from it meanwhile are in the database then.
    """
    folder.mkdir(mode=0o700)
    for store, files in removed.items():
        for suffix in sorted(files, reverse=True):
            target = folder / f"{file_of(store)}{suffix}"
            with (
                files[suffix].open("rb") as source,
                os.fdopen(open_own(target, os.O_WRONLY | os.O_CREAT), "wb") as copied,
            ):
                shutil.copyfileobj(source, copied)
    return datadir.with_stand_ins(folder, removed)
