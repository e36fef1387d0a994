"""Steps in the appliance: one at a time, and none is left marked as running."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from gevent.event import Event

from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from doctor.rebuilds import OwnedStores, OwnerSteps
from doctor.settings import DoctorSettings
from doctor.wire import RepairStepRequest, StepRunning

REINDEX = RepairStepRequest("reindex", {"store": "hub"})


class FakeStores(OwnedStores):
    """A store whose write waits for `go`, and then returns or raises."""

    def __init__(self, path: Path) -> None:
        self.enabled = frozenset({"hub", "auth"})
        self.go = Event()
        self.begun = Event()
        self.error: Exception | None = None
        self._path = path

    @contextmanager
    def use(self, name: str) -> Iterator[Any]:
        yield SimpleNamespace(
            name=name, path=self._path, read_slow=lambda _: [], write_alone=self._write
        )

    def _write(self, *_arguments: object) -> str:
        self.begun.set()
        self.go.wait(10)
        if self.error is not None:
            raise self.error
        return "done"


@pytest.fixture
def stores(tmp_path: Path) -> FakeStores:
    (tmp_path / "store").touch()
    return FakeStores(tmp_path / "store")


@pytest.fixture
def steps(stores: FakeStores) -> OwnerSteps:
    return OwnerSteps(stores, DoctorSettings(), SystemClock(), Log(io.BytesIO()))


def test_second_step_is_refused_until_the_first_has_ended(
    steps: OwnerSteps, stores: FakeStores
) -> None:
    first = gevent.spawn(steps.apply, REINDEX, "me")
    assert stores.begun.wait(10)
    assert steps.running
    with pytest.raises(StepRunning, match="reindex of hub") as refused:
        steps.apply(RepairStepRequest("reindex", {"store": "auth"}), "me")
    assert refused.value.retry_after == 1.0
    stores.go.set()
    assert first.get(timeout=10).done == "done"
    assert not steps.running
    assert steps.apply(REINDEX, "me").done == "done"


def test_failed_step_does_not_prevent_the_next(steps: OwnerSteps, stores: FakeStores) -> None:
    stores.go.set()
    stores.error = Unavailable("the disk is full")
    with pytest.raises(Unavailable):
        steps.apply(REINDEX, None)
    stores.error = None
    assert not steps.running
    assert steps.apply(REINDEX, None).done == "done"
