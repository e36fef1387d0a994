"""The check of the files of a workspace that is served without writing."""

from collections.abc import Iterable

from appliance.workspace.datadir import DataDir
from appliance.workspace.schema_reader import read_state
from appliance.workspace.upgrade import StoreDamaged, refuse, refuse_older


def check_stores(datadir: DataDir, stores: Iterable[str]) -> None:
    """Refuses stores that this program can't serve as they are. Changes nothing.

    Raises StoreDamaged, SchemaTooOld, or what `refuse` raises.
    """
    for store in stores:
        if not datadir.database(store).is_file():
            raise StoreDamaged(f"{store}: there is no file {datadir.database(store)}")
        schema = read_state(datadir.database(store), store, running=False)
        refuse(schema)
        refuse_older(schema)
