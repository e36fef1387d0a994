"""The check of the files of a workspace that is served without writing."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing

from appliance.kernel.errors import Conflict
from appliance.kernel.reader import open_connection
from appliance.kernel.store_files import suspect_marker
from appliance.workspace.datadir import DataDir, WorkspaceNotFound
from appliance.workspace.upgrade import SchemaTooNew, StoreDamaged, state, upgrade_error


class SchemaTooOld(Conflict):
    code = "SCHEMA_TOO_OLD"
    default_message = "the data has an older schema, which is not migrated while serving read-only"
    default_hint = "start once without --read-only: agentlipd up"


def check_stores(datadir: DataDir, stores: Iterable[str]) -> None:
    """Refuses stores that this program can't serve as they are. Changes nothing.

    Raises WorkspaceNotFound, StoreDamaged, SchemaTooOld or SchemaTooNew.
    """
    if not datadir.dir.is_dir():
        raise WorkspaceNotFound(f"no workspace in {datadir.workspace}")
    for store in stores:
        database = datadir.database(store)
        if not database.is_file() or suspect_marker(database).exists():
            problem = "is marked as damaged" if database.is_file() else "is missing"
            raise StoreDamaged(f"{store}: the database file {problem}")
        try:
            with closing(open_connection(database, "NORMAL", read_only=True)) as connection:
                schema = state(connection, store)
        except sqlite3.Error as error:
            raise upgrade_error(error, store) from error
        if schema.too_new:
            raise SchemaTooNew(f"{store}: {SchemaTooNew.default_message}")
        if schema.pending:
            raise SchemaTooOld(f"{store}: {SchemaTooOld.default_message}")
