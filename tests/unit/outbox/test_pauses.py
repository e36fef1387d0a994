"""Routes whose deliveries an operator paused."""

import pytest

from appliance.kernel.clock import HOUR_MS
from appliance.outbox import pauses, wire
from appliance.outbox.settings import OrderedDestination


def pause(outbox, route, seconds=None):
    return outbox.admin.pause(wire.Pause(route, seconds)).paused


def resume(outbox, route):
    return outbox.admin.resume(wire.Resume(route)).paused


@pytest.mark.parametrize("route", ["broker:default", "broker"])
def test_paused_route_keeps_its_sends_until_resumed(outbox, route):
    assert pause(outbox, route) == [wire.PausedRoute(route, None)]
    outbox.send(key="k1")
    assert outbox.round() == {"claimed": 0}
    assert outbox.statuses() == {"k1": "pending"}
    assert outbox.service.state().paused == [wire.PausedRoute(route, None)]
    with pytest.raises(wire.NotPaused) as refused:
        resume(outbox, "brokr")
    assert f"one of {route}:" in refused.value.hint
    assert resume(outbox, route) == []
    assert outbox.round() == {"claimed": 1}
    assert outbox.statuses() == {"k1": "done"}


def test_pause_of_another_route_holds_nothing(outbox):
    pause(outbox, "broker:other")
    outbox.send(key="k1")
    assert outbox.round() == {"claimed": 1}


def test_pause_covers_sends_in_order(new_outbox):
    outbox = new_outbox(in_order=(OrderedDestination(to="#a"),))
    pause(outbox, "broker:default")
    outbox.send(key="k1", to="#a")
    assert outbox.round() == {"claimed": 0}


def test_pause_ends_after_its_time_although_the_wall_clock_is_set(outbox):
    pause(outbox, "broker:default", seconds=60)
    outbox.send(key="k1")
    outbox.clock.ms -= 2 * HOUR_MS
    assert outbox.round() == {"claimed": 0}
    outbox.clock.pass_seconds(61)
    assert outbox.service.state().paused == []
    assert outbox.round() == {"claimed": 1}


def test_pause_outlives_the_process(outbox):
    pause(outbox, "broker:default", seconds=3600)
    before = outbox.service.state().paused
    outbox.reopen()
    assert outbox.service.state().paused == before != []


def test_pause_of_an_unknown_target_names_the_targets(outbox):
    with pytest.raises(wire.NoSuchTarget) as refused:
        pause(outbox, "brokr:default")
    assert "broker" in refused.value.hint
    assert outbox.service.state().paused == []


def test_pauses_are_limited_and_ended_ones_make_room(outbox, monkeypatch):
    monkeypatch.setattr(pauses, "PAUSES_MAX", 2)
    pause(outbox, "broker:a")
    pause(outbox, "broker:b", seconds=10)
    with pytest.raises(wire.TooManyPauses):
        pause(outbox, "broker:c")
    outbox.clock.pass_seconds(11)
    names = [each.route for each in pause(outbox, "broker:c")]
    assert names == ["broker:a", "broker:c"]
    assert sorted(outbox.service.store.read(pauses.read_all)) == names
