"""Tasks: how many there may be, and for how long."""

import msgspec
import pytest

from appliance.kernel.errors import Conflict
from appliance.kernel.tool import Tool
from appliance.mcp import tasks
from appliance.mcp.protocol import Refusal
from appliance.mcp.tasks import Tasks
from tests.support.clock import FakeClock


class Arguments(msgspec.Struct, frozen=True):
    wait: float


TOOL = Tool(
    "wait", "", "", Arguments, None, "", lambda *_: None,
    unfinished=lambda outcome: isinstance(outcome, Conflict),
)  # fmt: skip


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(clock):
    return Tasks(clock)


def test_one_token_has_a_limited_number_of_tasks(store):
    for _ in range(tasks.OWNED_MAX):
        store.create("a", TOOL, Arguments(1), None)
    with pytest.raises(Refusal, match="too many"):
        store.create("a", TOOL, Arguments(1), None)
    store.create("b", TOOL, Arguments(1), None)


def test_expired_task_is_unknown_and_frees_its_place(store, clock):
    made = [store.create("a", TOOL, Arguments(1), 5000) for _ in range(tasks.OWNED_MAX)]
    clock.pass_seconds(5)
    with pytest.raises(Refusal, match="not found"):
        store.find("a", made[0].id)
    store.create("a", TOOL, Arguments(1), None)
    assert len(store.tasks_of("a")) == 1


def test_attempts_end_with_a_result_or_with_the_wait(store, clock):
    waits = []

    def attempt(arguments):
        waits.append(arguments.wait)
        return Conflict()

    task = store.create("a", TOOL, Arguments(10), None)
    store.advance(task, 4, attempt)
    clock.pass_seconds(7)
    store.advance(task, 4, attempt)
    assert (waits, task.status) == ([4, 3], "working")
    clock.pass_seconds(3)
    store.advance(task, 0, attempt)
    assert task.status == "completed"
    assert isinstance(task.outcome, Conflict)
