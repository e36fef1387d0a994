"""Clears a store that was found damaged, after a check."""

import sqlite3
from contextlib import closing

from appliance.backup.remedies import restore_hint
from appliance.checks.check import Finding
from appliance.checks.context import open_read_only
from appliance.kernel.errors import Conflict, Unavailable
from appliance.kernel.store_errors import is_damage
from appliance.kernel.whole_file import sync_directory
from appliance.workspace.datadir import DataDir
from appliance.workspace.manifest import StoreLost
from doctor.checks.store import integrity


class StillDamaged(Conflict):
    code = "STILL_DAMAGED"
    default_message = "the store is still damaged"
    default_hint = "agentlip doctor --all"


class StoreUnreadable(Unavailable):
    code = "STORE_UNREADABLE"
    default_message = "the store can't be read"
    default_hint = "agentlip doctor --run host.disk,host.owner"


def clear_suspect(datadir: DataDir, store: str) -> bool:
    """Return True if the store was suspect and is not damaged. Raise StillDamaged otherwise."""
    problems: list[Finding] = []
    if not datadir.database(store).exists():
        raise StillDamaged(f"{store}: the file is missing", hint=StoreLost(store).hint)
    try:
        with closing(open_read_only(datadir.database(store))) as connection:
            problems += integrity(store, connection)
    except sqlite3.Error as error:
        if not is_damage(error):
            raise StoreUnreadable(f"{store} can't be read: {error}") from error
        raise StillDamaged(
            f"{store} is damaged: {error}", hint=restore_hint(datadir, store)
        ) from error
    if problems:
        damaged = any(finding.problem == "damaged" for finding in problems)
        raise StillDamaged(
            f"{store}: {problems[0].message}",
            details={"problems": [p.message for p in problems]},
            hint=restore_hint(datadir, store) if damaged else None,
        )
    marker = datadir.suspect_file(store)
    marked = marker.exists()
    if marked:
        marker.unlink(missing_ok=True)
        sync_directory(marker.parent)
    return marked
