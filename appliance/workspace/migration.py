"""Reads migration files: their numbers, their compatibility with older programs, their statements.

The files are package data, so a checkout, an installed package and the image find them alike.
"""

import hashlib
import re
import sqlite3
from collections.abc import Iterator, Sequence
from importlib import resources
from importlib.resources.abc import Traversable

import msgspec

import migrations as migration_files
from appliance.kernel.errors import Unavailable

_NAME = re.compile(r"(\d{4})_\w+\.sql")
_OPENS_WITH = re.compile(r"^-- opens-with: (\d+)$", re.MULTILINE)
_OPTIONAL = re.compile(r"^-- optional: yes$", re.MULTILINE)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


class MigrationFailed(Unavailable):
    code = "MIGRATION_FAILED"
    default_message = "the schema can't be migrated; nothing was changed"
    default_hint = "fix the problem in the log and start again: agentlip migrate --plan"


class Migration(msgspec.Struct, frozen=True):
    """A migration. `opens_with`: the oldest program's number that may open the file afterwards."""

    number: int
    name: str
    sql: str
    sha256: str
    opens_with: int
    optional: bool


def read(name: str, text: str) -> Migration:
    text = text.replace("\r\n", "\n")
    number, opens_with = _NAME.fullmatch(name), _OPENS_WITH.search(text)
    if number is None or opens_with is None:
        raise MigrationFailed(f"{name}: not named like 0001_x.sql, or no line '-- opens-with: N'")
    return Migration(
        number=int(number[1]),
        name=name,
        sql=text,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        opens_with=int(opens_with[1]),
        optional=_OPTIONAL.search(text) is not None,
    )


def load(store: str, root: Traversable | None = None) -> tuple[Migration, ...]:
    """Return the migrations for `store` in order."""
    folder = (root or resources.files(migration_files)) / store
    migrations = [
        read(entry.name, entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    ]
    return tuple(sorted(migrations, key=lambda each: (each.number, each.optional, each.name)))


def newest(migrations: Sequence[Migration]) -> int:
    """Return the newest required migration's number."""
    return max((migration.number for migration in migrations if not migration.optional), default=0)


def statements(migration: Migration) -> Iterator[str]:
    """Yield a file's statements, one by one.

    Python's `executescript` first commits an open transaction, so a step and its record would not
    be one transaction. Instead the file is split at the semicolons at which SQLite regards a
    statement as complete.
    """
    begin = 0
    text = migration.sql
    for end in (match.end() for match in re.finditer(";", text)):
        if sqlite3.complete_statement(text[begin:end]):
            yield text[begin:end]
            begin = end
    if _COMMENT.sub("", text[begin:]).strip():
        yield text[begin:]
