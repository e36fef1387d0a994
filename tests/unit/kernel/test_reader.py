"""Connections for reading: one whose pragmas fail is closed."""

import sqlite3

import pytest

from appliance.kernel import reader


def test_connection_is_closed_if_its_pragmas_fail(tmp_path, monkeypatch):
    made, path = [], tmp_path / "new.sqlite3"
    path.touch()

    class Watched(sqlite3.Connection):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            made.append(self)

    monkeypatch.setattr(reader, "BUSY_TIMEOUT_MS", "no number )")
    connect = sqlite3.connect
    monkeypatch.setattr(
        reader.sqlite3, "connect", lambda *args, **kw: connect(*args, factory=Watched, **kw)
    )
    with pytest.raises(sqlite3.OperationalError):
        reader.open_connection(path, "FULL")
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        made[0].execute("SELECT 1")
