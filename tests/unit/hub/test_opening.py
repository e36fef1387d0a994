"""A store opens and closes many times under patched modules, as the server runs it.

Run as a script it does so and prints how often somebody was left hanging.
"""

from gevent import monkey

if __name__ == "__main__":
    monkey.patch_all()

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import peewee
import pytest

from appliance.kernel import reader

TIMES = 60


def test_nobody_hangs_when_all_threads_connect_and_leave_at_once(new_file):
    """peewee guards connecting with a lock that, patched, is no lock for native threads."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.hub.test_opening", str(new_file)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout == f"0 of {TIMES}\n", done.stdout + done.stderr


def test_a_connection_that_failed_half_way_can_be_opened_again(new_file, tmp_path, monkeypatch):
    database = peewee.SqliteDatabase(None, autoconnect=False)
    database.init(shutil.copy(new_file, tmp_path))
    monkeypatch.setattr(reader, "BUSY_TIMEOUT_MS", "no number )")
    with pytest.raises(sqlite3.OperationalError):
        reader.open_connection(tmp_path, "FULL", database)
    monkeypatch.undo()
    connection = reader.open_connection(tmp_path, "FULL", database)
    assert connection.execute("SELECT count(*) FROM events").fetchone() == (0,)
    reader.close_connection(connection, database)


def main() -> None:
    import gevent
    import msgspec

    from appliance.hub import model, queries
    from appliance.kernel.clock import SystemClock
    from appliance.kernel.log import Log
    from appliance.kernel.store import Store, StoreSettings

    settings = msgspec.structs.replace(StoreSettings(), free_bytes_min=0, readers=4)
    hanging = 0
    for _ in range(TIMES):
        store = Store(
            "hub",
            Path(sys.argv[1]),
            settings,
            SystemClock(),
            Log(sys.stderr.buffer),
            database=model.database,
        )
        asked = [gevent.spawn(store.read, queries.facts) for _ in range(8)]
        asked.append(gevent.spawn(store.write, lambda tx: tx.now))
        gevent.joinall(asked, timeout=1)
        hanging += not (all(one.ready() for one in asked) and store.close(1))
    print(f"{hanging} of {TIMES}")


if __name__ == "__main__":
    main()
