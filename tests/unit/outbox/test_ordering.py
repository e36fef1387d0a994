"""Rules for destinations that are delivered in order, and the routes that encode them."""

import pytest

from appliance.outbox import ordering
from appliance.outbox.destination import BadDestination
from appliance.outbox.settings import OrderedDestination


@pytest.mark.parametrize(
    ("rule", "matching"),
    [
        (OrderedDestination(), {"ops a", "ops b", "dev a"}),
        (OrderedDestination(mesh="ops"), {"ops a", "ops b"}),
        (OrderedDestination(to="#a"), {"ops a", "dev a"}),
        (OrderedDestination(mesh="ops", to="#a"), {"ops a"}),
        (OrderedDestination(to="queue:a"), set()),
    ],
)
def test_rule_matches_by_mesh_and_destination(rule, matching):
    ordered = ordering.parse([rule])
    matches = {
        f"{mesh} {ref}"
        for mesh, ref in (("ops", "a"), ("ops", "b"), ("dev", "a"))
        if ordering.contains(ordered, mesh, "topic", ref)
    }
    assert matches == matching


def test_invalid_destination_of_a_rule_is_refused():
    with pytest.raises(BadDestination):
        ordering.parse([OrderedDestination(to="# a")])
