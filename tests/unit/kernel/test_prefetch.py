"""Reading ahead gives the same items, passes failures on, and leaves no thread behind."""

import threading
from contextlib import closing

import pytest

from appliance.kernel.prefetch import ahead


def left() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "ahead"]


def test_the_same_items_in_the_same_order():
    assert list(ahead(iter(range(1000)))) == list(range(1000))
    assert list(ahead(iter([]))) == []
    assert left() == []


def test_the_next_item_is_made_while_this_one_is_worked_on():
    made = threading.Event()

    def items():
        yield 1
        made.set()
        yield 2

    with closing(ahead(items())) as found:
        assert next(found) == 1
        assert made.wait(10)
    assert left() == []


def test_a_failure_comes_after_the_items_before_it():
    def items():
        yield 1
        raise OSError("disk")

    found = ahead(items())
    assert next(found) == 1
    with pytest.raises(OSError, match="disk"):
        next(found)
    assert left() == []


def test_who_stops_early_leaves_no_thread():
    with closing(ahead(iter(range(10**9)))) as found:
        assert [next(found), next(found)] == [0, 1]
    assert left() == []
