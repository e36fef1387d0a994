"""Digests of the rows that give rights: tokens, and members of meshes.

A store declares them in `store.toml`. Each change of these rows by this program renews the digest,
in the same transaction. If another program changed the rows before, the digest stays as it was, so
that the doctor goes on reporting it.
"""

import hashlib
from collections.abc import Callable, Collection
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from appliance.kernel import meta
from appliance.kernel.batch import Tx
from appliance.kernel.meta import Executor
from appliance.kernel.store_declaration import declaration_of

P = ParamSpec("P")
T = TypeVar("T")
Write = Callable[Concatenate[Tx, P], T]


def begin(connection: Executor, store: str) -> None:
    """Note the digests that a store lacks. Call when its schema is the newest."""
    for table, sql in declaration_of(store).digests.items():
        if _find_digest(connection, table) is None:
            connection.execute(meta.SET, (_key(table), _digest(connection, sql)))


def renew(connection: Executor, store: str, but: Collection[str] = ()) -> None:
    """Note the digests of the rows as they are now, in a store that has digests, but not of these
    tables."""
    for table, sql in declaration_of(store).digests.items():
        if table not in but and _find_digest(connection, table) is not None:
            connection.execute(meta.SET, (_key(table), _digest(connection, sql)))


def find_changes(connection: Executor, store: str) -> list[str]:
    """The tables whose rows are not as this program left them."""
    return [
        table
        for table, sql in declaration_of(store).digests.items()
        # An older file has no digest, and may lack columns.
        if (old := _find_digest(connection, table)) is not None and old != _digest(connection, sql)
    ]


def digested(store: str) -> Callable[[Write[P, T]], Write[P, T]]:
    """Decorates a function of `tx` that changes such rows."""

    def decorate(function: Write[P, T]) -> Write[P, T]:
        @wraps(function)
        def write(tx: Tx, /, *args: P.args, **kwargs: P.kwargs) -> T:
            before = find_changes(tx, store)
            result = function(tx, *args, **kwargs)
            renew(tx, store, before)
            return result

        return write

    return decorate


def _key(table: str) -> str:
    return f"x_digest_of_{table}"


def _find_digest(connection: Executor, table: str) -> str | None:
    return meta.value(connection, _key(table))


def _digest(connection: Executor, sql: str) -> str:
    rows = connection.execute(sql).fetchall()  # their number is limited
    return hashlib.sha256(repr(rows).encode()).hexdigest()
