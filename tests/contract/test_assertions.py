"""Tests wait for conditions instead of sleeping."""

import re

from tests.contract.test_walls import ROOT

TESTS = ROOT / "tests"
SLEEP = re.compile(r"(?m)^ +(?:await )?(?:time|gevent|asyncio)\.sleep\((?!0\))")
# Where the time is the subject. Everything else waits with `until`.
SLEEPING = {
    "sdk/test_gevent.py": "a greenlet that must run meanwhile",
    "support/bus_agents.py": "the pace of a client, and work that takes a part of a lease",
    "support/mailserver.py": "a server that keeps its client waiting",
    "support/plugins.py": "a plugin that hangs",
    "unit/busfile/test_claims_processes.py": "the pace at which workers are killed",
    "unit/hub/plugins/conftest.py": "the event loop notices the end of processes",
    "unit/hub/plugins/test_sandbox_hostile.py": "programs that wait for a signal",
    "unit/kernel/test_loop.py": "no round begins after the stop",
    "unit/kernel/test_pool.py": "no timeout comes later",
    "unit/web/test_socket.py": "the loop looks at sockets, and a buffer fills up",
}


def test_nothing_sleeps_where_time_is_not_the_subject() -> None:
    files = (file for file in TESTS.rglob("*.py") if "bench" not in file.parts)
    sleeping = {str(file.relative_to(TESTS)) for file in files if SLEEP.search(file.read_text())}
    assert sleeping <= SLEEPING.keys()
