"""What a store declares for its backups: the BackupRules that `backups` in its `store.toml` names.

Backups know no table and no route of a subsystem. They ask the rules of each store instead.
"""

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import cast

import msgspec

from appliance.kernel.store_declaration import declaration_of, resolve

ServedGet = Callable[[str], bytes]
"""Requests a path of a server and returns the body of its response."""


class BackupRules(msgspec.Struct, frozen=True, kw_only=True):
    """Every field has the default of an ordinary store.

    counted  nouns, each with the table whose rows it names: `agentlip backup create` counts them
    authors  the query of the tokens and plugins that wrote its rows, for the manifest
    served   how what a server gives out of a restored copy differs from the rows of the copy. The
             server serves read-only, which few subsystems do (`READ_ONLY_ROLES` in `roles.py`)
    checks   the group of checks of the doctor that must find no error in a restored copy
    """

    counted: Mapping[str, str] = {}
    authors: str = ""
    served: Callable[[ServedGet, sqlite3.Connection], Iterable[str]] | None = None
    checks: str = ""


def rules_of(store: str) -> BackupRules:
    name = declaration_of(store).backups
    return cast(BackupRules, resolve(name)) if name else BackupRules()
