"""Lists files beside the stores whose rows name them: large payloads and the files that agents put.

Files are named after their content and never changed, so a cut's files can be copied later.
"""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from msgspec import UNSET, UnsetType

from appliance.kernel import meta
from appliance.kernel.store_declaration import DECLARATIONS, declaration_of
from appliance.kernel.store_files import open_database
from appliance.workspace.datadir import DataDir

NAME = re.compile(r"sha256-[0-9a-f]{64}")


def folder_of(store: str) -> str:
    """Return the folder, relative to the workspace; "" for a store without such files."""
    declared = declaration_of(store).blobs
    return declared.folder if declared else ""


def list_named(connection: sqlite3.Connection, store: str) -> list[str]:
    """Return the files that rows name, relative to the workspace."""
    return sorted(f"{folder_of(store)}/{name}" for name in names_in(connection, store))


def names_in(connection: sqlite3.Connection, store: str) -> Iterator[str]:
    """Yield the files that rows name; none from a file that lacks the table."""
    declared = declaration_of(store).blobs
    if declared and meta.exists(connection, declared.table):
        names = connection.execute(declared.named)
        yield from (name for (name,) in names if NAME.fullmatch(str(name)))


def names_elsewhere(datadir: DataDir, store: str) -> set[str]:
    """Return the files in a store's folder that other stores name. Raises sqlite3.Error."""
    names = set[str]()
    for other in DECLARATIONS:
        path = datadir.database(other)
        if other != store and folder_of(other) == folder_of(store) and path.exists():
            with closing(open_database(path, "ro")) as connection:
                names.update(names_in(connection, other))
    return names


def count_missing(connection: sqlite3.Connection, store: str, workspace: Path) -> int | UnsetType:
    """Return how many files are missing; UNSET for a store without such files."""
    if not folder_of(store):
        return UNSET
    return sum(not (workspace / path).is_file() for path in list_named(connection, store))
