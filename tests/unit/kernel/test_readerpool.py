"""Reader threads: how many start, which is next, and what a removed file or a close changes."""

from _thread import get_ident

import gevent
import pytest

from appliance.kernel.loop_callbacks import allocate_lock
from appliance.kernel.write_request import ReadRequest
from tests.unit.kernel.test_store import insert, open_store, values

__all__ = ["open_store"]


def find_thread(_reader):
    return get_ident()


class Held:
    """A read that holds its thread until `release`."""

    def __init__(self, store):
        self._lock = allocate_lock()
        self._lock.acquire()
        self._reading = store._reads.begin(ReadRequest(self._hold, ()))

    def _hold(self, _reader):
        self._lock.acquire()
        return get_ident()

    def release(self):
        self._lock.release()
        return self._reading.wait()


def begin(store, function):
    return store._reads.begin(ReadRequest(function, ()))


@pytest.fixture
def store(open_store):
    store = open_store()
    store.write(insert, "a")
    assert store.read(values) == ["a"]
    return store


def test_reads_in_sequence_share_one_thread(store):
    assert len({store.read(find_thread) for _ in range(20)}) == 1
    held = Held(store)
    other = store.read(find_thread)
    own = held.release()
    assert other != own, "a second thread starts beside a long read"
    assert {store.read(find_thread) for _ in range(20)} == {own}


def test_waiting_reads_run_in_order(store):
    held = [Held(store), Held(store)]
    order = []
    waiting = [begin(store, lambda _, number=number: order.append(number)) for number in range(5)]
    own = held[0].release()
    for reading in waiting:
        reading.wait()
    assert order == [0, 1, 2, 3, 4]
    assert own != held[1].release()
    assert store._reads.pending == 0


def test_reads_beside_a_long_read_go_on_after_file_removal(store):
    held = Held(store)
    store.path.unlink()
    waiting = begin(store, values)
    held.release()
    assert waiting.wait() == ["a"]


def test_closing_answers_waiting_reads(store):
    held = [Held(store), Held(store)]
    waiting = [begin(store, values) for _ in range(5)]
    closing = gevent.spawn(store.close)
    gevent.sleep(0)
    for hold in held:
        hold.release()
    assert [reading.wait() for reading in waiting] == [["a"]] * 5
    assert closing.get()


def test_closing_waits_for_a_thread_that_has_yet_to_open_the_file(store, monkeypatch):
    """The connection that ends last removes the log."""
    held, may_open, open_reader = Held(store), allocate_lock(), store._reads._open_reader
    may_open.acquire()

    def open_late():
        with may_open:
            return open_reader()

    monkeypatch.setattr(store._reads, "_open_reader", open_late)
    late = begin(store, values)
    closing = gevent.spawn(store.close)
    gevent.sleep(0)
    held.release()
    store._reads._threads[0].join(0.2)
    may_open.release()
    assert late.wait() == ["a"]
    assert closing.get()
