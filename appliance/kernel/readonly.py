"""What serving without writing needs: a check of the files, and the absent writer of a store."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing

from appliance.kernel.clock import Clock
from appliance.kernel.datadir import DataDir, WorkspaceNotFound, suspect_marker
from appliance.kernel.errors import Conflict
from appliance.kernel.ids import IdFactory
from appliance.kernel.reader import open_connection
from appliance.kernel.store_errors import StoreReadOnly
from appliance.kernel.upgrade import SchemaTooNew, StoreDamaged, state, upgrade_error
from appliance.kernel.write_request import WriteRequest


class SchemaTooOld(Conflict):
    code = "SCHEMA_TOO_OLD"
    default_message = "the data has an older schema, which is not migrated while serving read-only"
    default_hint = "start once without --read-only: agentlipd up"


class NoWriter:
    """The writer of a store that is served read-only. Every request is refused."""

    alive = True
    restarts = 0

    def __init__(self, clock: Clock) -> None:
        self.ids = IdFactory(clock)

    def submit(self, request: WriteRequest) -> None:
        """Raises StoreReadOnly."""
        raise StoreReadOnly

    def close(self, timeout_seconds: float) -> bool:
        return True


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
