"""Where a member runs, as it is sent and as it is read; and the note of a refused copy."""

import sqlite3

import msgspec
import pytest

from appliance.kernel.batch import Tx
from appliance.kernel.ids import IdFactory
from appliance.mesh import instance
from appliance.mesh.frames import Negotiate
from appliance.mesh.instance import CopyNote, MemberInstance
from tests.support.clock import FakeClock

HERE = MemberInstance("host", "/work", "boot-1")


def read(*features):
    """From the frame of another program."""
    frame = msgspec.json.encode({"type": "negotiate", "require": features})
    return instance.instance_in(msgspec.json.decode(frame, type=Negotiate).require)


def test_instance_is_read_as_it_was_sent():
    assert read("key_epoch", {"name": "max_payload"}, HERE.to_feature()) == HERE
    assert HERE.to_feature()["params"]["version"] == 1
    assert read("concurrent_connection_policy") is None
    assert read({"name": "concurrent_connection_policy", "params": {"version": 1}}) is None


@pytest.mark.parametrize(
    "wrong", [{"host": "h"}, {**msgspec.to_builtins(HERE), "host": "x" * 4097}]
)
def test_instance_of_a_wrong_shape_is_an_error(wrong):
    with pytest.raises(msgspec.ValidationError):
        read({"name": "concurrent_connection_policy", "params": {"instance": wrong}})


def test_note_of_a_copy_is_the_newest_of_each_broker():
    clock, connection = FakeClock(), sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)")
    tx = Tx(connection, clock, IdFactory(clock))
    tx.restart()
    for where, refused in (("b1", "h:/a"), ("b1", "h:/b"), ("b2", "h:/c")):
        instance.note_copy(tx, where, "key", HERE.name, refused)
    rows = dict(connection.execute("SELECT key, value FROM meta"))
    notes = {key: msgspec.json.decode(text, type=CopyNote) for key, text in rows.items()}
    assert [note.refused for note in notes.values()] == ["h:/b", "h:/c"]
    assert notes["copy:b1"] == CopyNote("key", HERE.name, "h:/b", clock.ms)
