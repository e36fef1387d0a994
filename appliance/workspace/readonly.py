"""Checks files that are used as they are, without a migration."""

from collections.abc import Iterable

from appliance.kernel.errors import Conflict
from appliance.workspace.datadir import DataDir
from appliance.workspace.schema_reader import read_state
from appliance.workspace.upgrade import SchemaState, StoreDamaged, refuse


class SchemaTooOld(Conflict):
    code = "SCHEMA_TOO_OLD"
    default_message = "the data is older than this program and has to be migrated first"
    default_hint = "agentlip migrate --apply; or start once without --read-only: agentlipd up"


def check_stores(datadir: DataDir, stores: Iterable[str]) -> None:
    """Refuse stores that this program can't serve unchanged. Changes nothing.

    Raises StoreDamaged, SchemaTooOld, or what `refuse` raises.
    """
    for store in stores:
        if not datadir.database(store).is_file():
            raise StoreDamaged(f"{store}: the database file is missing")
        schema = read_state(datadir.database(store), store, running=False)
        refuse(schema)
        refuse_older(schema)


def refuse_older(before: SchemaState) -> None:
    """Raise SchemaTooOld if one of this program's steps is pending."""
    if before.pending:
        raise SchemaTooOld(f"{before.store}: {SchemaTooOld.default_message}")
