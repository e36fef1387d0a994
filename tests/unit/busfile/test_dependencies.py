"""Dependencies of tasks, without cycles, and the list of those that are ready."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.busfile import claims, dependencies
from appliance.busfile.dependencies import DependencyCycle
from tests.support.bus import NOW, BusFixture


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


def test_task_is_ready_when_all_it_needs_is_completed_and_nobody_has_it(bus):
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


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde")), max_size=20))
def test_graph_never_has_a_cycle(tmp_path_factory, pairs):
    bus = BusFixture(tmp_path_factory.mktemp("bus"))
    accepted = set()
    for task, needs in pairs:
        try:
            bus.run(dependencies.add, task, needs)
        except DependencyCycle:
            continue
        accepted.add((task, needs))
    assert accepted == set(bus.rows("SELECT * FROM x_dependencies"))
    free = set("abcde")
    while free:  # tasks that need no other of the rest can be taken away, until none is left
        leaves = {task for task in free if not any(t == task and n in free for t, n in accepted)}
        assert leaves
        free -= leaves
    bus.connection.close()
