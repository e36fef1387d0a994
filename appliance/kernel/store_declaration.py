"""Reads a store's declarations in `migrations/<store>/store.toml`. Most stores have no such file.

The declaration is found by folder, so stores are known even if a subsystem is switched off, or a
command starts no subsystem. The kernel knows no store by name.
"""

import sqlite3
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

import migrations as migration_files

STORE_ID_KEY = "x_store_id"


class SchemaAdapter(Protocol):
    """A store whose file other programs may write too, after a shared specification."""

    spec_version: int
    """The specification's version. A file has its number as `schema_version` in `meta`."""

    def first_facts(self) -> Sequence[tuple[str, str]]:
        """Return `meta` rows for a new file."""

    def optional_steps_work(self, connection: sqlite3.Connection) -> bool:
        """Return whether what optional migrations made exists and works with this SQLite."""

    def missing_columns(
        self, connection: sqlite3.Connection, model: sqlite3.Connection
    ) -> list[str]:
        """Return columns that `model`, the first migration, has in shared tables and the file
        lacks."""

    def more_objects(self, connection: sqlite3.Connection) -> Sequence[str]:
        """Return statements for what `settle` made in this file, beyond the migrations."""

    def settle(
        self,
        connection: sqlite3.Connection,
        optional_missing: Sequence[str],
        *,
        adopted: bool,
        now_ms: int,
        log: Any,
    ) -> None:
        """Settle the file after each start's migrations. `adopted`: another program made this
        file."""


class RestoreRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Declarations for restores of this store; its `restored` module does the rest.

    raised      tables with AUTOINCREMENT whose numbers clients keep: none is given out twice
    references  (store, query, other query): the other query, in that store, selects all values that
                the query may select. Checked if only one store is restored
    """

    raised: tuple[str, ...] = ()
    references: tuple[tuple[str, str, str], ...] = ()


class RecoveryRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How `agentlip recover` treats this store.

    suspended   its subsystem is suspended while the file is damaged, and recovered before a restore
    finish      `module:function` that completes the new file; a relative module is below the
                appliance's package
    """

    suspended: bool = False
    finish: str = ""


class LogDeclaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table that is exported as a log, with a schema in `export/schemas`.

    kind     its name in paths, manifests and requests; default: the store's name
    key      the row number's column
    columns  what is selected for a schema column, if not the column with that name
    times    the same, for columns with milliseconds; `times_of_others`: for other programs' text
    scope    the scope for reading over HTTP
    payload  the column whose length counts for a segment's size
    kept     rows are never removed from the store
    """

    kind: str = ""
    table: str = "log"
    key: str = "event_id"
    columns: dict[str, str] = {}
    times: dict[str, str] = {}
    times_of_others: dict[str, str] = {}
    scope: str = "export:delivery"
    payload: str | None = None
    kept: bool = False


class BlobDeclaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files that the store's rows name, `sha256-…` after their content, backed up and restored
    with the store.

    folder  where they are, below the workspace; several stores may share a folder
    table   the table with these rows, which an older file may lack
    named   the query that returns their names
    counts  whether the folder's bytes are part of this store's size
    """

    folder: str
    table: str
    named: str
    counts: bool = True


class StoreDeclaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A store's declaration. Every default suits an ordinary store.

    shared   other programs open and write the same file, as long as the appliance serves and
             without it. So nothing assumes that this program is the only one: the file is optional,
             is adopted when it appears, has no migrations, and is checkpointed by whoever writes it
    opens    `module:function(path, synchronous)` for a shared store, which opens the file, or makes
             it, and brings its schema up to date. It runs for each connection and may be called at
             the same time by several threads and programs
    model    `module:function(model, present)` for a shared store, which makes in `model` the
             tables, indexes and triggers that the file `present` should have
    head     the query for the newest link in a hash chain, which each backup notes
    commits  the table with AUTOINCREMENT whose numbers are noted outside a shared store
    newest   the query for its newest time, milliseconds or text, by an index or a small table
    texts    tables and their columns that can name files, as `sha256:HEX`
    """

    contents: str = ""  # the contents, in Markdown for the reference page about files
    path: str = ""  # the file, below the workspace; default: in the data folder, by store name
    shared: bool = False
    opens: str = ""
    model: str = ""
    commits: str = ""
    head: str = ""
    newest: str = ""
    needed: bool = False  # the appliance does not serve without this store
    marks_workspace: bool = False  # a directory with this file is a workspace
    keeps_record: bool = False  # has a copy of the store record, and the epoch
    numbers_events: bool = False  # in a table `events`; without events a new epoch begins
    id_key: str = STORE_ID_KEY  # the `meta` key for an id that only this file has
    recovery: RecoveryRules = RecoveryRules()
    restore: RestoreRules = RestoreRules()
    texts: dict[str, tuple[str, ...]] = {}
    log: LogDeclaration | None = None
    blobs: BlobDeclaration | None = None
    restored: str = ""  # module with the function `restored` (`restoring.py`), below that package
    backups: str = ""  # `.module:name` for its BackupRules (`checks/backup_rules.py`)
    repairs: str = ""  # module with its repairs (`checks/repairs.py`)
    adapter: str = ""  # `.module:class` for a SchemaAdapter, below the appliance's package


DATA_FOLDER, NOTES, NEWEST_EVENT = ".agentlip", "commits", "newest-event"
_DECLARING = (".sql", ".toml")


def _declarations() -> dict[str, StoreDeclaration]:
    stores = {}
    for folder in Path(migration_files.__file__).parent.iterdir():
        if folder.is_dir() and any(file.name.endswith(_DECLARING) for file in folder.iterdir()):
            file = folder / "store.toml"
            values = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
            stores[folder.name] = msgspec.convert(values, StoreDeclaration)
    return dict(sorted(stores.items()))


DECLARATIONS = _declarations()
"""Every store in the appliance: the folders in `migrations`."""

ORDINARY = StoreDeclaration()


def declaration_of(store: str) -> StoreDeclaration:
    return DECLARATIONS.get(store, ORDINARY)


def path_of(store: str) -> str:
    """Return a store's file, relative to the workspace."""
    return declaration_of(store).path or f"{DATA_FOLDER}/{store}.sqlite3"


def note_of(store: str) -> str:
    """Return the file with the store's newest commit number, relative to the workspace."""
    name = NEWEST_EVENT if declaration_of(store).numbers_events else f"{NOTES}/{store}"
    return f"{path_of(store).rpartition('/')[0]}/{name}"


def file_of(store: str) -> str:
    return path_of(store).rpartition("/")[2]


@cache
def adapter_of(store: str) -> SchemaAdapter | None:
    """Return the store's adapter; None for a store that only this program writes."""
    adapter = declaration_of(store).adapter
    return cast(SchemaAdapter, resolve(adapter)()) if adapter else None


def open_shared(store: str, path: Path, synchronous: str) -> sqlite3.Connection:
    """Open a shared store, whose file is made if it is missing."""
    opener = resolve(declaration_of(store).opens)
    return cast(sqlite3.Connection, opener(path, synchronous))


def resolve(name: str) -> Any:
    """Return the function or class that a declaration names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module, __name__.partition(".")[0]), attribute)
