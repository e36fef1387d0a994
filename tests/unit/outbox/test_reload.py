"""Settings that are read again while the outbox runs."""

import pytest

from appliance.outbox.expiry import MaxAgeTooLong, RetentionTooShort
from appliance.outbox.settings import OrderedDestination


def read(outbox, **values):
    outbox.changed = values
    return outbox.service.reload()


def test_reload_applies_ordered_destinations(outbox):
    assert read(outbox, in_order=(OrderedDestination(to="#alerts"),)).changed == ["in_order"]
    outbox.send("first")
    assert outbox.rows("SELECT route LIKE '%order%' FROM outbox") == [(1,)]


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
