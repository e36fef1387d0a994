"""The rules of leases."""

import pytest

from appliance.courier import lease


def test_done_is_final_and_a_dead_letter_can_only_be_redriven():
    assert lease.LEASE.events(lease.DONE) == ()
    assert lease.LEASE.events(lease.DEAD) == (lease.REDRIVE,)


def test_only_leased_work_can_be_settled():
    for event in (lease.RENEW, lease.ACK, lease.RELEASE, lease.NACK, lease.REJECT, lease.EXPIRE):
        assert lease.LEASE.sources(event) == (lease.LEASED,)


@pytest.mark.parametrize(
    ("now", "until"), [(100.0, 130.0), (150.0, 180.0), (190.0, 200.0), (900.0, 200.0)]
)
def test_a_renewed_lease_ends_within_its_total(now, until):
    assert lease.renewed_until(100.0, now, lease_time=30.0, total_max=100.0) == until
