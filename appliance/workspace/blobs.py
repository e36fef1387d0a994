"""Lists and copies files beside a store that rows name, such as large worker bus payloads.

Files are named after their content and never changed, so a cut's files can be copied later.
"""

import re
import sqlite3
from pathlib import Path

from msgspec import UNSET, UnsetType

from appliance.kernel.store_declaration import declaration_of

NAME = re.compile(r"sha256-[0-9a-f]{64}")


def folder_of(store: str) -> str:
    """Return the folder, relative to the workspace; "" for a store without such files."""
    declared = declaration_of(store).blobs
    return declared.folder if declared else ""


def list_named(connection: sqlite3.Connection, store: str) -> list[str]:
    """Return the files that rows name, relative to the workspace."""
    declared = declaration_of(store).blobs
    names = connection.execute(declared.named) if declared else ()
    return sorted(f"{folder_of(store)}/{name}" for (name,) in names if NAME.fullmatch(str(name)))


def count_missing(connection: sqlite3.Connection, store: str, workspace: Path) -> int | UnsetType:
    """Return how many files are missing; UNSET for a store without such files."""
    if not folder_of(store):
        return UNSET
    return sum(not (workspace / path).is_file() for path in list_named(connection, store))
