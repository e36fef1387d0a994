"""The declarations in a store's `repairs` module, which `store.toml` names.

    PARTS    each DerivedPart that only this store has
    CHANGES  actions for steps that change rows, by name

A running appliance's writer process imports this module, so keep imports few.
"""

import sqlite3
from collections.abc import Callable, Mapping

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.errors import Conflict
from appliance.workspace.datadir import STORES

Arguments = Mapping[str, str]
Change = Callable[[sqlite3.Connection, Arguments, Clock], str]
"""Changes a store in the caller's transaction, and returns a description. Raises CannotRepair."""


class CannotRepair(Conflict):
    code = "CANNOT_REPAIR"
    default_message = "this can't be repaired automatically"
    default_hint = "agentlip doctor --all"


class DerivedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part that a repair builds again from a store's rows.

    message  a step's description, with the store as `{}`
    build    builds the part again in an open transaction, and returns a description
    checks   the checks that run before and after a rebuild
    stores   the stores that have the part
    copied   the store is copied before, so a running appliance does not run the step
    needs_indexes  the part can't be built while an index is damaged
    triggers  the triggers that the part makes, or that another program makes in their place
    module    the SQLite module for the part's table, which a message about damage names
    forget    before all rows may get new numbers: marks the part as missing if it names rows by
              number, and returns whether the part must be built again
    """

    name: str
    message: str
    build: Callable[[sqlite3.Connection, str, Clock], str]
    checks: tuple[str, ...]
    stores: tuple[str, ...] = STORES
    copied: bool = False
    needs_indexes: bool = True
    triggers: tuple[str, ...] = ()
    module: str | None = None
    forget: Callable[[sqlite3.Connection], bool] = lambda _connection: False
