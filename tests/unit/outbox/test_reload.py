"""Settings that are read again while the outbox runs."""

import pytest

from appliance.outbox import reload, wire
from appliance.outbox.service import MaxAgeTooLong, RetentionTooShort
from appliance.outbox.settings import OrderedDestination, OutboxSettings


def read(outbox, **values):
    outbox.changed = values
    return outbox.service.reload()


def test_reload_applies_settings_and_lists_the_others(outbox):
    assert read(outbox) == wire.Reloaded([], [])
    done = read(outbox, message_bytes_max=4, sends_max=1, concurrency_max=1, mesh="other")
    assert done == wire.Reloaded(["mesh", "message_bytes_max", "sends_max"], ["concurrency_max"])
    assert outbox.service.settings.concurrency_max == OutboxSettings().concurrency_max
    with pytest.raises(wire.MessageTooLarge):
        outbox.send("12345")
    outbox.send("1234")
    with pytest.raises(wire.InsufficientStorage):
        outbox.send("1234")
    assert outbox.rows("SELECT mesh FROM outbox") == [("other",)]


def test_reload_applies_ordered_destinations(outbox):
    assert read(outbox, in_order=(OrderedDestination(to="#alerts"),)).changed == ["in_order"]
    outbox.send("first")
    assert outbox.rows("SELECT route LIKE '%order%' FROM outbox") == [(1,)]


def test_reload_recomputes_the_max_age_of_every_mesh(outbox):
    outbox.service.set_retention("ops", 30)
    assert read(outbox, max_age_hours=100).changed == ["max_age_hours"]
    assert outbox.service.max_age_hours("ops") == outbox.service.max_age_hours("other") == 100


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"dedupe_retention_days": 6, "mesh": "new"}, RetentionTooShort),
        ({"max_age_hours": 10_000, "mesh": "new"}, MaxAgeTooLong),
    ],
)
def test_reload_with_invalid_settings_changes_nothing(outbox, values, kind):
    before = outbox.service.settings
    with pytest.raises(kind):
        read(outbox, **values)
    assert outbox.service.settings is before


def test_every_setting_that_needs_a_restart_exists():
    assert set(OutboxSettings.__struct_fields__) >= reload.NEED_RESTART
