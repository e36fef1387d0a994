"""The server process with other values of some constants: the first argument has them as JSON.

With the variable TEST_CLOCK_FILE its wall clock is ahead by the milliseconds in that file.
"""

import json
import os
import sys
from pathlib import Path

from appliance.kernel.clock import SystemClock
from appliance.server import main  # first, because it patches the standard library
from tests.support.constants import set_constants


def set_wall_clock(file: Path) -> None:
    read = SystemClock.now_ms
    # A fault of the real clock, in a server of its own: mypy refuses any method that is replaced.
    SystemClock.now_ms = lambda clock: read(clock) + int(file.read_text())  # type: ignore[method-assign]


if __name__ == "__main__":
    if "TEST_CLOCK_FILE" in os.environ:
        set_wall_clock(Path(os.environ["TEST_CLOCK_FILE"]))
    set_constants(json.loads(sys.argv.pop(1)))
    sys.exit(main())
