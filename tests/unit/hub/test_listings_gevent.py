"""A store that gevent has patched opens, lists channels and closes many times without hanging.

Run as a script, this file does so and prints how many of the times did not end.
"""

from gevent import monkey

if __name__ == "__main__":
    monkey.patch_all()

import subprocess
import sys
from pathlib import Path

TIMES = 60


def test_concurrent_connects_and_close_do_not_hang(new_file):
    """A lock of Python's is a greenlet's there: a native thread that opens a store, composes a
    query or runs one must not wait for any."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.hub.test_listings_gevent", str(new_file)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout == f"0 of {TIMES}\n", done.stdout + done.stderr


def main() -> None:
    import gevent
    import msgspec

    from appliance.hub import listings
    from appliance.kernel import store as stores
    from appliance.kernel.clock import SystemClock
    from appliance.kernel.log import Log
    from appliance.kernel.store import Store, StoreSettings

    settings = msgspec.structs.replace(StoreSettings(), free_bytes_min=0)
    stores.READERS = 4
    hanging = 0
    for _ in range(TIMES):
        store = Store("hub", Path(sys.argv[1]), settings, SystemClock(), Log(sys.stderr.buffer))
        reads = [gevent.spawn(store.read, listings.channels, 9, None, None) for _ in range(8)]
        reads.append(gevent.spawn(store.write, lambda tx: tx.now))
        gevent.joinall(reads, timeout=1)
        hanging += not (all(read.ready() for read in reads) and store.close(1))
    print(f"{hanging} of {TIMES}")


if __name__ == "__main__":
    main()
