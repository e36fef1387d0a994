"""The rules of leases."""

import pytest

from appliance.courier import lease


@pytest.mark.parametrize(
    ("now", "until"), [(100.0, 130.0), (150.0, 180.0), (190.0, 200.0), (900.0, 200.0)]
)
def test_a_renewed_lease_ends_within_its_total(now, until):
    assert lease.renewed_until(100.0, now, lease_time=30.0, total_max=100.0) == until
