"""Dependencies of tasks, without cycles, and the list of those that are ready."""

import pytest

from appliance.busfile import claims, dependencies
from appliance.busfile.dependencies import DependencyCycle
from tests.support.bus import NOW


def worker(bus, task, state="ASSIGNED", created=NOW):
    values = (task, state, created, created)
    bus.run(
        lambda c: c.execute(
            "INSERT OR REPLACE INTO workers (task_id, state, created_at_ms, state_changed_at_ms)"
            " VALUES (?, ?, ?, ?)",
            values,
        )
    )


def ready(bus, now=NOW):
    return bus.run(dependencies.ready, now)


def test_task_is_ready_when_dependencies_completed_and_unclaimed(bus):
    for number, task in enumerate(("api", "tests", "docs")):
        worker(bus, task, created=NOW - number)
    for needs in ("api", "docs"):
        bus.run(dependencies.add, "tests", needs)
    assert ready(bus) == ["docs", "api"]
    bus.run(claims.claim, NOW, "docs", "a")
    assert ready(bus) == ["api"]
    assert ready(bus, NOW + claims.LEASE_MS) == ["docs", "api"]
    worker(bus, "api", "COMPLETED")
    bus.send(type_="task_done", correlation_id="docs")  # not merged yet
    assert ready(bus, NOW + claims.LEASE_MS) == ["docs"]
    worker(bus, "docs", "COMPLETED")
    assert ready(bus) == ["tests"]
    worker(bus, "tests", "WORKING")
    assert ready(bus) == []


def test_cycle_is_refused_with_its_path(bus):
    bus.run(dependencies.add, "b", "a")
    bus.run(dependencies.add, "c", "b")
    bus.run(dependencies.add, "c", "b")
    with pytest.raises(DependencyCycle, match="a can't need c: c needs b needs a"):
        bus.run(dependencies.add, "a", "c")
    with pytest.raises(DependencyCycle):
        bus.run(dependencies.add, "a", "a")
    assert bus.run(dependencies.remove, "c", "b")
    assert not bus.run(dependencies.remove, "c", "b")
    bus.run(dependencies.add, "a", "c")
