"""Whether the ids of messages in a file of another program are in the order of their creation."""

import sqlite3
from contextlib import closing

import pytest

from appliance.hub import foreign_schema
from appliance.kernel.clock import SystemClock
from appliance.kernel.ids import IdFactory

CLOCK = SystemClock()


@pytest.mark.parametrize(
    ("ids", "order"),
    [
        ([], "id"),
        (["3f", "a0", "m9"], "id"),
        (["b", "a"], "rowid"),
        (["a", "zz"], "rowid"),  # rises, but what we add would come before it
        (["msg_01ARZ3NDEKTSV4RRFFQ69G5FAV"], "id"),
        (["msg_7ZZZZZZZZZ0000000000000000"], "id"),  # from the future, but made by this program
        (["msg_9f0c5e0e-2a83-4a3c-9d1e-3c1c8b7a6f00"], "rowid"),
    ],
)
def test_ids_are_the_order_only_if_old_and_new_ones_rise(ids: list[str], order: str) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE messages (id TEXT PRIMARY KEY)")
        connection.executemany("INSERT INTO messages VALUES (?)", [(each,) for each in ids])
        assert foreign_schema.find_id_order(connection, CLOCK.now_ms()).order == order
        if order == "id":
            factory = IdFactory(CLOCK)
            factory.seed(max(ids, default=None))
            assert all(each < factory.new("msg_") for each in ids)
