"""A store opens and closes many times under patched modules, as the server runs it.

Run as a script it does so and prints how often somebody was left hanging.
"""

from gevent import monkey

if __name__ == "__main__":
    monkey.patch_all()

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.kernel import reader

TIMES = 60


def test_nobody_hangs_when_all_threads_connect_and_leave_at_once(new_file):
    """A lock of Python's is a greenlet's there: a native thread that opens a store, composes a
    query or runs one must not wait for any."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.hub.test_opening", str(new_file)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout == f"0 of {TIMES}\n", done.stdout + done.stderr


def test_a_connection_that_failed_half_way_is_closed(new_file, monkeypatch):
    made = []

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
        reader.open_connection(new_file, "FULL")
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        made[0].execute("SELECT 1")


def main() -> None:
    import gevent
    import msgspec

    from appliance.hub import listings
    from appliance.kernel.clock import SystemClock
    from appliance.kernel.log import Log
    from appliance.kernel.store import Store, StoreSettings

    settings = msgspec.structs.replace(StoreSettings(), free_bytes_min=0, readers=4)
    hanging = 0
    for _ in range(TIMES):
        store = Store("hub", Path(sys.argv[1]), settings, SystemClock(), Log(sys.stderr.buffer))
        asked = [gevent.spawn(store.read, listings.channels, 9, None, None) for _ in range(8)]
        asked.append(gevent.spawn(store.write, lambda tx: tx.now))
        gevent.joinall(asked, timeout=1)
        hanging += not (all(one.ready() for one in asked) and store.close(1))
    print(f"{hanging} of {TIMES}")


if __name__ == "__main__":
    main()
