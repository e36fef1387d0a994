"""Claims, leases and fences; slots."""

import pytest

from appliance.busfile import claims
from appliance.busfile.claims import LEASE_MS, ClaimHeld, ClaimLost
from appliance.kernel.errors import Invalid
from tests.support.bus import NOW

ENDS = NOW + LEASE_MS


def claim(bus, agent="a", now=NOW, task="t", **options):
    return bus.run(claims.claim, now, task, agent, **options)


def renew(bus, agent="a", now=NOW, task="t", **options):
    return bus.run(claims.renew, now, task, agent, **options)


def foreign_claim(bus, agent, now, task="t"):
    """As the specification replaces an expired claim."""
    bus.run(lambda c: c.execute("DELETE FROM task_claims WHERE task_id = ?", (task,)))
    values = (task, agent, now, now + LEASE_MS)
    bus.run(lambda c: c.execute("INSERT INTO task_claims VALUES (?, ?, ?, ?)", values))


def test_first_wins_until_the_lease_ends(bus):
    assert claim(bus).fence == 1
    with pytest.raises(ClaimHeld, match=r"a has t for 59 s; its lease ends in 1 s") as held:
        claim(bus, "b", ENDS - 1)
    assert held.value.hint == (
        "wait: --wait 1; or ask for it: agentlip bus send release_request --to a --task t"
    )
    assert held.value.details["claimed_by"] == "a"
    assert claim(bus, "b", ENDS).fence == 2
    (present,) = bus.run(claims.all_claims)
    assert present.claimed_by == "b"
    assert present.valid(ENDS)
    assert not present.valid(ENDS + LEASE_MS)


@pytest.mark.parametrize("claimer", ["ours", "foreign"])
def test_stale_fence_is_refused_after_another_claim(bus, claimer):
    first = claim(bus)
    (foreign_claim if claimer == "foreign" else claim)(bus, "a", ENDS)
    for call in (
        lambda: renew(bus, now=ENDS, fence=first.fence),
        lambda: bus.run(claims.release, "t", "a", first.fence),
        lambda: bus.run(claims.require, "t", "a", first.fence),
    ):
        with pytest.raises(ClaimLost, match="with fence 2"):
            call()
    assert bus.run(claims.require, "t", "a", 2).fence == 2


def test_insert_or_replace_of_another_program_raises_the_fence(bus):
    claim(bus)
    replace = "INSERT OR REPLACE INTO task_claims VALUES ('t', 'x', 1, 2)"
    for _ in range(2):
        bus.run(lambda connection: connection.execute(replace))
    assert bus.rows("SELECT fence FROM x_fences") == [(3,)]


def test_expired_claim_is_not_enough_where_the_time_counts(bus):
    claim(bus)
    assert bus.run(claims.require, "t", "a", now_ms=ENDS - 1)
    with pytest.raises(ClaimLost):
        bus.run(claims.require, "t", "a", now_ms=ENDS)


def test_slots_are_given_until_all_are_taken(bus):
    taken = [bus.run(claims.claim_slot, NOW, "gpu", 2, agent) for agent in "ab"]
    assert [slot.task_id for slot in taken] == ["slot:gpu:1", "slot:gpu:2"]
    with pytest.raises(ClaimHeld, match="a has slot:gpu:1"):
        bus.run(claims.claim_slot, NOW, "gpu", 2, "c")
    with pytest.raises(Invalid):
        bus.run(claims.claim_slot, NOW, "gpu", 0, "c")
