"""What a store declares of itself, in `migrations/<store>/store.toml`. Most have no such file.

The declaration is found by its folder, so the stores of subsystems that are switched off, and of
commands that start no subsystem, are known as well. The kernel knows no store by name.
"""

import sqlite3
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import import_module, resources
from typing import Any, Literal, Protocol, cast

import msgspec

import migrations as migration_files

STORE_ID_KEY = "x_store_id"


class SchemaLog(Protocol):
    """What an adapter needs of a log. Clients import adapters, but not the log."""

    def info(self, message: str, **fields: Any) -> None: ...
    def warning(self, message: str, **fields: Any) -> None: ...


class SchemaAdapter(Protocol):
    """A store whose file other programs may write too, after a specification they share."""

    spec_version: int
    """The version of that specification. Its number in a file is `schema_version` in `meta`."""

    def first_facts(self) -> Sequence[tuple[str, str]]:
        """Rows of `meta` in a new file."""

    def optional_steps_work(self, connection: sqlite3.Connection) -> bool:
        """Whether what optional migrations made is there and can be used by this SQLite."""

    def missing_columns(
        self, connection: sqlite3.Connection, model: sqlite3.Connection
    ) -> list[str]:
        """Columns that `model`, the first migration, has and the file lacks."""

    def settle(
        self,
        connection: sqlite3.Connection,
        optional_missing: Sequence[str],
        *,
        adopted: bool,
        now_ms: int,
        log: SchemaLog,
    ) -> None:
        """After the migrations of every start. `adopted`: another program made this file."""


class RestoreStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A statement of a restore. `since`: the schema that has its tables and columns. Parameters:
    `:now_ms`, `:now`. The store before the restore is attached as `present`."""

    sql: str
    since: int = 1


class RestoreNotice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a restore has to say about a store. `sql` selects an id and a text for people; it
    compares the restored store with the one before it, which is attached as `present`.

    lost          made since the backup, and not in it
    valid-again   revoked since the backup
    sent-again    delivered since the backup; receivers that know the id drop it
    """

    kind: Literal["lost", "valid-again", "sent-again"]
    noun: str
    sql: str
    since: int = 1


class StoreReference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Values of this store (`sql` selects them) that must be in what `named` selects of `store`."""

    store: str
    sql: str
    named: str
    says: str
    since: int = 1
    named_since: int = 1


class RestoreRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a restore does to this store.

    raised     tables with AUTOINCREMENT whose numbers clients keep: none is given out twice
    steps      end what processes held at the moment of the backup
    carried    copy from the store before the restore what must not be forgotten
    otherwise  instead of `carried`, if that store can't be read
    names_member_key  it can't be restored alone after the member key was replaced
    """

    raised: tuple[str, ...] = ()
    names_member_key: bool = False
    steps: tuple[RestoreStep, ...] = ()
    carried: tuple[RestoreStep, ...] = ()
    otherwise: tuple[RestoreStep, ...] = ()
    notices: tuple[RestoreNotice, ...] = ()
    references: tuple[StoreReference, ...] = ()


class StoreDeclaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every field has the default of an ordinary store."""

    file: str = ""  # name of its file; default: the store's name and `.sqlite3`
    needed: bool = False  # without it nothing is served
    marks_workspace: bool = False  # a directory with its file is a workspace
    keeps_record: bool = False  # has a copy of the record of stores, and the epoch
    numbers_events: bool = False  # without its data the workspace gets a new epoch
    id_key: str = STORE_ID_KEY  # the key in `meta` of an id that only this file has
    recovery: str = ""  # the command that recovers a damaged file
    restore: RestoreRules = RestoreRules()
    adapter: str = ""  # `.module:class` of a SchemaAdapter, below the package of the appliance


def _declarations() -> dict[str, StoreDeclaration]:
    stores = {}
    for folder in resources.files(migration_files).iterdir():
        if folder.is_dir() and any(file.name.endswith(".sql") for file in folder.iterdir()):
            file = folder / "store.toml"
            values = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
            stores[folder.name] = msgspec.convert(values, StoreDeclaration)
    return dict(sorted(stores.items()))


DECLARATIONS = _declarations()
"""Every store of the appliance: the folders of `migrations`."""

ORDINARY = StoreDeclaration()


def declaration_of(store: str) -> StoreDeclaration:
    return DECLARATIONS.get(store, ORDINARY)


def file_of(store: str) -> str:
    return declaration_of(store).file or f"{store}.sqlite3"


@cache
def adapter_of(store: str) -> SchemaAdapter | None:
    """The store's adapter; None for a store that only this program writes."""
    module, _, name = declaration_of(store).adapter.partition(":")
    package = __name__.partition(".")[0]
    if not module:
        return None
    return cast(SchemaAdapter, getattr(import_module(module, package), name)())
