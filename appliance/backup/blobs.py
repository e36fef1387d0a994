"""Files beside a store that its rows name, such as large payloads of the worker bus.

They are named after their content and never changed, so those of a cut can be copied after it.
"""

import re
import sqlite3
from pathlib import Path

from msgspec import UNSET, UnsetType

from appliance.kernel.store_declaration import declaration_of

NAME = re.compile(r"sha256-[0-9a-f]{64}")


def folder_of(store: str) -> str:
    """Where they are, relative to the workspace; "" for a store without them."""
    declared = declaration_of(store).blobs
    return declared.folder if declared else ""


def list_named(connection: sqlite3.Connection, store: str) -> list[str]:
    """The files that rows name, relative to the workspace."""
    declared = declaration_of(store).blobs
    names = connection.execute(declared.named) if declared else ()
    return sorted(f"{folder_of(store)}/{name}" for (name,) in names if NAME.fullmatch(str(name)))


def count_missing(connection: sqlite3.Connection, store: str, workspace: Path) -> int | UnsetType:
    """How many of them are not there; UNSET for a store without them."""
    if not folder_of(store):
        return UNSET
    return sum(not (workspace / path).is_file() for path in list_named(connection, store))
