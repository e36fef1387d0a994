"""Runners of hooks, and the listing of what they ran."""

import pytest

from appliance.inbox.hooks.loops import HookRunner
from tests.support.inbox import push
from tests.unit.inbox.hooks.test_service import HooksFixture, python


@pytest.fixture
def hooks(tmp_path):
    fixture = HooksFixture(tmp_path, python("pass"))
    yield fixture
    fixture.inbox.close()


def run(hooks):
    runner = HookRunner(hooks.service, hooks.inbox.clock, hooks.inbox.log)
    return runner.run_once(hooks.inbox.clock.now_ms())


def test_runner_runs_one_hook_a_round(hooks):
    hooks.receive(push(1), push(2))
    assert [run(hooks) for _ in range(3)] == [{"runs": 1}, {"runs": 1}, {"runs": 0}]
    assert [(run.event, run.outcome) for run in hooks.runs()] == [("message", "ok")] * 2


def test_run_that_can_not_be_recorded_ends_no_runner(hooks):
    hooks.receive(push(1))
    hooks.inbox.store.close()
    assert run(hooks) == {"runs": 1}
    assert hooks.inbox.logged("a hook was not run: the run can't be recorded")


def test_pages_have_each_run_once_newest_first(hooks):
    hooks.receive(*(push(number) for number in range(1, 8)))
    hooks.run_all()
    numbers, before = [], None
    while True:
        page = hooks.service.runs("default", before, 3)
        numbers += [run.number for run in page.runs]
        if not page.has_more:
            break
        before = page.runs[-1].number
    assert numbers == sorted(set(numbers), reverse=True)
    assert len(numbers) == 7
    assert hooks.service.runs("other", None, 9).runs == []
