"""Reading ahead gives the same items, passes failures on, and leaves no thread behind."""

import threading
from contextlib import closing

import pytest

from appliance.export.prefetch import prefetch


def left() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "ahead"]


def test_prefetched_items_keep_their_order():
    assert list(prefetch(iter(range(1000)))) == list(range(1000))
    assert list(prefetch(iter([]))) == []
    assert left() == []


def test_next_item_is_made_while_the_current_one_is_processed():
    made = threading.Event()

    def items():
        yield 1
        made.set()
        yield 2

    with closing(prefetch(items())) as prefetched:
        assert next(prefetched) == 1
        assert made.wait(10)
    assert left() == []


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
