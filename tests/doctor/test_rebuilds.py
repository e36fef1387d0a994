"""Rebuilds in the appliance: one at a time."""

import io
from types import SimpleNamespace

import gevent
import pytest
from gevent.event import Event

from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from doctor.rebuilds import Rebuilds
from doctor.wire import RebuildRequest, RebuildRunning

INDEXES = RebuildRequest("indexes", "hub")


class FakeStore(SimpleNamespace):
    """Its write waits for `go`."""

    name = "hub"

    def __init__(self) -> None:
        self.go = Event()
        self.begun = Event()

    def read_slow(self, *_arguments: object) -> list[str]:
        return []

    def write_alone(self, *_arguments: object) -> str:
        self.begun.set()
        self.go.wait(10)
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
