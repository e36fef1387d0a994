"""Timers: each is due once and in order, unless it was cancelled."""

from hypothesis import given
from hypothesis import strategies as st

from appliance.courier.timers import Timers


class FakeTimer:
    def __init__(self):
        self.timer_id, self.deadline = 0, 0.0


@given(st.lists(st.tuples(st.sampled_from("sc"), st.integers(0, 5), st.integers(0, 100))))
def test_each_timer_is_due_once_and_in_order(steps):
    timers, fakes, wanted = Timers(), [FakeTimer() for _ in range(6)], {}
    for what, number, at in steps:
        if what == "s":
            timers.set(fakes[number], at)
            wanted[number] = at
        else:
            timers.cancel(fakes[number])
            wanted.pop(number, None)
    rung = timers.due(50, 100)
    assert [timer.deadline for timer in rung] == sorted(at for at in wanted.values() if at <= 50)
    assert len(timers.due(1000, 100)) == sum(at > 50 for at in wanted.values())
    assert timers.due(10_000, 100) == []
