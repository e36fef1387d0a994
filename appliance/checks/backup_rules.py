"""A store's rules for its backups: the BackupRules that `backups` in `store.toml` names.

Backups know no subsystem's tables or routes, and use each store's rules instead.
"""

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import cast

import msgspec

from appliance.kernel.store_declaration import declaration_of, resolve

ServedGet = Callable[[str], bytes]
"""Requests a server path and returns the response body."""


class BackupRules(msgspec.Struct, frozen=True, kw_only=True):
    """A store's backup rules. Every field has the default for an ordinary store.

    counted  nouns, each with the table whose rows it names: `agentlip backup create` counts them
    authors  the query for the tokens and plugins that wrote the rows, for the manifest
    served   how the data served from a restored copy differs from the copy's rows. The server
             serves read-only, which few subsystems do (`READ_ONLY_ROLES` in `roles.py`)
    checks   the doctor's check group that must find no error in a restored copy
    """

    counted: Mapping[str, str] = {}
    authors: str = ""
    served: Callable[[ServedGet, sqlite3.Connection], Iterable[str]] | None = None
    checks: str = ""


def rules_of(store: str) -> BackupRules:
    name = declaration_of(store).backups
    return cast(BackupRules, resolve(name)) if name else BackupRules()
