"""Rebuilds in the appliance: one at a time, and none is left marked as running."""

import io
from types import SimpleNamespace

import gevent
import pytest
from gevent.event import Event

from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from doctor.rebuilds import Rebuilds
from doctor.wire import RebuildRequest, RebuildRunning

INDEXES = RebuildRequest("indexes", "hub")


class FakeStore(SimpleNamespace):
    """Its write waits for `go`, and then returns or raises."""

    name = "hub"

    def __init__(self) -> None:
        self.go = Event()
        self.begun = Event()
        self.error: Exception | None = None

    def read_slow(self, *_arguments: object) -> list[str]:
        return []

    def write_alone(self, *_arguments: object) -> str:
        self.begun.set()
        self.go.wait(10)
        if self.error is not None:
            raise self.error
        return "done"


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def rebuilds(store: FakeStore) -> Rebuilds:
    opened = {"hub": store, "auth": store}
    return Rebuilds(opened, frozenset(opened), lambda name: store, SystemClock(), Log(io.BytesIO()))


def test_second_rebuild_is_refused_until_the_first_has_ended(
    rebuilds: Rebuilds, store: FakeStore
) -> None:
    first = gevent.spawn(rebuilds.apply, INDEXES, "me")
    assert store.begun.wait(10)
    assert rebuilds.running
    with pytest.raises(RebuildRunning, match="indexes of hub") as refused:
        rebuilds.apply(RebuildRequest("indexes", "auth"), "me")
    assert refused.value.retry_after == 1.0
    store.go.set()
    assert first.get(timeout=10).done == "done"
    assert not rebuilds.running
    assert rebuilds.apply(INDEXES, "me").done == "done"


def test_failed_rebuild_does_not_prevent_the_next(rebuilds: Rebuilds, store: FakeStore) -> None:
    store.go.set()
    store.error = Unavailable("the disk is full")
    with pytest.raises(Unavailable):
        rebuilds.apply(INDEXES, None)
    store.error = None
    assert not rebuilds.running
    assert rebuilds.apply(INDEXES, None).done == "done"
