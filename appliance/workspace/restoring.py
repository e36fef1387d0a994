"""Defines what a subsystem does to its store in a restore: `adjust_store` in its `restored.py`.

    def adjust_store(connection: sqlite3.Connection, context: RestoreContext) -> None

`connection` is open on the new file, within a transaction. The store before the restore is attached
as `present`, if readable. `migrations/<store>/store.toml` names the module.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from appliance.kernel.log import without_path
from appliance.kernel.store_errors import is_damage, sqlite_name

SHOWN_MAX = 20  # ids per kind in a plan, which people read
NoticeKind = Literal["lost", "lost-delivered", "valid-again", "still-revoked", "sent-again"]


class Noticed(msgspec.Struct, frozen=True):
    """Entries with one fate: how many, and the first ones as (id, text for people).

    lost           made since the backup, and not in it
    lost-delivered  lost here, but received elsewhere
    valid-again    revoked since the backup, and valid again
    still-revoked  revoked since the backup, and still revoked
    sent-again     delivered since the backup; receivers drop known ids
    """

    store: str
    kind: NoticeKind
    noun: str
    count: int
    first: tuple[tuple[str, str], ...]


class RestoreContext(msgspec.Struct):
    """The input and output of `restored` modules.

    cut_ms   the backup's moment
    present  the store before the restore can be read
    settings_file  agentlip.toml before the restore; it may be missing
    damaged  the store before turned out to be damaged

    With `revive`, everything that was revoked since the backup becomes valid again.
    """

    connection: sqlite3.Connection
    store: str
    now_ms: int
    cut_ms: int
    revive: bool
    present: bool
    settings_file: Path
    damaged: bool = False
    notices: list[Noticed] = []

    def notice(self, kind: NoticeKind, noun: str, selection: str) -> None:
        """Report the entries that `selection` selects, as an id and a text for people, if there
        are any. The comparison needs `present`, so without that store nothing is reported."""
        if not self.present:
            return
        with self._reading():
            rows = self.connection.execute(selection).fetchmany(SHOWN_MAX)
            if rows:
                (count,) = self.connection.execute(f"SELECT count(*) FROM ({selection})").fetchone()
                first = tuple((str(entry), without_path(str(text))) for entry, text in rows)
                self.notices.append(Noticed(self.store, kind, noun, count, first))

    def notice_revoked(self, noun: str, selection: str) -> None:
        """Report the rows in `selection`, revoked since the backup. The caller revokes them
        again."""
        self.notice("valid-again" if self.revive else "still-revoked", noun, selection)

    def carry(self, sql: str, *parameters: object) -> bool:
        """Run a statement that reads `present`. Return False if that store can't be read."""
        if self.present:
            with self._reading():
                self.connection.execute(sql, parameters)
                return True
        return False

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if is_damage(error):
                self.damaged = True
            elif sqlite_name(error) != "SQLITE_ERROR":  # an older file lacks a table
                raise
