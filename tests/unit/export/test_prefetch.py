"""Reading ahead gives the same items, passes failures on, and leaves no thread behind."""

import threading
from contextlib import closing

import pytest

from appliance.export.prefetch import prefetch


def left() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "ahead"]


def test_failure_is_raised_after_the_items_before_it():
    def items():
        yield 1
        raise OSError("disk")

    prefetched = prefetch(items())
    assert next(prefetched) == 1
    with pytest.raises(OSError, match="disk"):
        next(prefetched)
    assert left() == []


def test_closed_prefetch_leaves_no_thread():
    with closing(prefetch(iter(range(10**9)))) as prefetched:
        assert [next(prefetched), next(prefetched)] == [0, 1]
    assert left() == []
