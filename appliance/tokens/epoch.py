"""The epoch: a random id of a workspace's history, replaced at every restore.

A cursor is valid only in its epoch: event 42 of one epoch is not event 42 of another. It is stored
in the auth database, which exists whatever roles are enabled.
"""

from appliance.kernel import meta
from appliance.kernel.ids import random_id
from appliance.kernel.meta import Executor

KEY = "epoch"


def current(connection: Executor) -> str:
    """The current epoch; generated and stored if there is none yet."""
    connection.execute(
        "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING",
        (KEY, random_id()),
    )
    return str(meta.value(connection, KEY))
