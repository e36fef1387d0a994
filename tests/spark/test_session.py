"""The session's settings depend on the arguments, and on the container it runs in."""

import pytest

from spark import session

GB = 2**30


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ([str(2 * GB)], "1228m"),
        ([None, str(3 * GB)], "1843m"),  # version 1 of control groups
        (["max"], "1g"),
        ([None, str(2**63 - 4096)], "1g"),  # version 1 says so for no limit
        ([None, None], "1g"),
    ],
)
def test_heap_is_a_share_of_what_the_container_may_use(tmp_path, written, expected):
    files = []
    for number, text in enumerate(written):
        files.append(tmp_path / str(number))
        if text is not None:
            files[-1].write_text(text + "\n")
    assert session.heap(files, machine=16 * GB) == expected


def test_requested_heap_has_priority_over_the_containers():
    chosen = session.settings(session.EngineSettings(driver_memory="700m"))
    assert chosen["spark.driver.memory"] == "700m"
