"""The check of the files of a workspace that is served without writing."""

from collections.abc import Iterable

from appliance.kernel.errors import Conflict
from appliance.workspace.datadir import DataDir, WorkspaceNotFound
from appliance.workspace.schema_reader import read_state
from appliance.workspace.upgrade import StoreDamaged, refuse


class SchemaTooOld(Conflict):
    code = "SCHEMA_TOO_OLD"
    default_message = "the data has an older schema, which is not migrated while serving read-only"
    default_hint = "start once without --read-only: agentlipd up"


def check_stores(datadir: DataDir, stores: Iterable[str]) -> None:
    """Refuses stores that this program can't serve as they are. Changes nothing.

    Raises WorkspaceNotFound, StoreDamaged, SchemaTooOld, or what `refuse` raises.
    """
    if not datadir.dir.is_dir():
        raise WorkspaceNotFound(f"no workspace in {datadir.workspace}")
    for store in stores:
        if not datadir.database(store).is_file():
            raise StoreDamaged(f"{store}: the database file is missing")
        schema = read_state(datadir.database(store), store, running=False)
        refuse(schema)
        if schema.pending:
            raise SchemaTooOld(f"{store}: {SchemaTooOld.default_message}")
