"""Settings that are read again while the outbox runs."""

import pytest

from appliance.outbox import reload, wire
from appliance.outbox.service import AboveWindow, BelowFloor
from appliance.outbox.settings import InOrder, OutboxSettings


def read(house, **values):
    house.changed = values
    return house.outbox.reload()


def test_what_changed_holds_at_once_and_the_rest_is_named(house):
    assert read(house) == wire.Reloaded([], [])
    done = read(house, message_bytes_max=4, sends_max=1, concurrency_max=1, mesh="other")
    assert done == wire.Reloaded(["mesh", "message_bytes_max", "sends_max"], ["concurrency_max"])
    assert house.outbox.settings.concurrency_max == OutboxSettings().concurrency_max
    with pytest.raises(wire.MessageTooLarge):
        house.send("12345")
    house.send("1234")
    with pytest.raises(wire.InsufficientStorage):
        house.send("1234")
    assert house.rows("SELECT mesh FROM outbox") == [("other",)]


def test_sends_are_in_order_where_the_new_settings_say_so(house):
    assert read(house, in_order=(InOrder(to="#alerts"),)).changed == ["in_order"]
    house.send("first")
    assert house.rows("SELECT route LIKE '%order%' FROM outbox") == [(1,)]


def test_the_greatest_age_is_computed_anew_for_every_mesh(house):
    house.outbox.adopt("ops", 30)
    assert read(house, max_age_hours=100).changed == ["max_age_hours"]
    assert house.outbox.max_age_hours("ops") == house.outbox.max_age_hours("other") == 100


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"dedupe_retention_days": 6, "mesh": "new"}, BelowFloor),
        ({"max_age_hours": 10_000, "mesh": "new"}, AboveWindow),
    ],
)
def test_settings_that_do_not_fit_change_nothing(house, values, kind):
    before = house.outbox.settings
    with pytest.raises(kind):
        read(house, **values)
    assert house.outbox.settings is before


def test_every_setting_that_needs_a_restart_exists():
    assert set(OutboxSettings.__struct_fields__) >= reload.NEED_RESTART
