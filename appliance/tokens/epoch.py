"""The epoch: a number drawn when a workspace is made and again at every restore.

It is part of every cursor's meaning: event 42 of one epoch is not event 42 of another.
It lives in the auth store, which is present whatever roles are on.
"""

from appliance.kernel.auth import Executor
from appliance.kernel.ids import random_id

KEY = "epoch"


def stored(connection: Executor) -> str | None:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (KEY,)).fetchone()
    return None if row is None else str(row[0])


def current(connection: Executor) -> str:
    """The epoch in force; drawn and stored if there is none yet."""
    connection.execute(
        "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING",
        (KEY, random_id()),
    )
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (KEY,)).fetchone()
    return str(row[0])
