"""What the `repairs` module of a store declares, which `store.toml` names.

    PARTS    each DerivedPart that only this store has
    CHANGES  actions of steps that change its rows, by name

The writer's process of a running appliance imports it, so it imports few others.
"""

import sqlite3
from collections.abc import Callable, Mapping

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.errors import Conflict
from appliance.workspace.datadir import STORES

Arguments = Mapping[str, str]
Change = Callable[[sqlite3.Connection, Arguments, Clock], str]
"""Changes a store in the caller's transaction, and says what it did. Raises CannotRepair."""


class CannotRepair(Conflict):
    code = "CANNOT_REPAIR"
    default_message = "this can't be repaired automatically"
    default_hint = "agentlip doctor --all"


class DerivedPart(msgspec.Struct, frozen=True, kw_only=True):
    """What a repair builds again from the rows of a store.

    message  what a step does, of the store `{}`
    build    builds it again in an open transaction, and says what it did
    checks   those that run before and after a rebuild
    stores   the stores that have it
    copied   the store is copied before, so a running appliance does not do it
    needs_indexes  it can't be built while an index is damaged
    triggers  those that it makes, or that another program makes in their place
    module    the SQLite module of its table, which a message about damage names
    forget    before all rows may get other numbers: marks it as missing if it names rows by
              number, and returns whether it must be built again
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
