"""Defines leases: work taken exclusively for a time, by one holder. Pure.

    ready ──claim──▶ leased ──ack──▶ done
      ▲                │ renew: leased until later
      ├──release───────┤ not counted as an attempt
      ├──nack, expire──┤ after a delay, while attempts are left
      │                └──reject, or no attempts left──▶ dead ──redrive──▶ ready

A claim counts an attempt. So the attempt number differs for each claim on one item, and is the
fencing token: a request with an older number can't end a newer claim's lease. The token is needed
where one holder can claim an item twice, such as a broker webhook whose call was interrupted for
longer than its lease. A connection or consumer has a name, settles only its own leases, and loses
them at its end. Courier applies these rules to envelopes in memory, the broker to rows in its
delivery queue.
"""

from appliance.kernel.state_machine import StateMachine

READY, LEASED, DONE, DEAD = "ready", "leased", "done", "dead"
CLAIM, RENEW, ACK, RELEASE, NACK, REJECT, EXPIRE, REDRIVE, EXHAUST = (
    "claim", "renew", "ack", "release", "nack", "reject", "expire", "redrive", "exhaust",
)  # fmt: skip

LEASE = StateMachine({
    (READY, CLAIM): LEASED,
    (LEASED, RENEW): LEASED,
    (LEASED, ACK): DONE,
    (LEASED, RELEASE): READY,
    (LEASED, NACK): READY,
    (LEASED, EXPIRE): READY,
    (LEASED, REJECT): DEAD,
    (LEASED, EXHAUST): DEAD,
    (DEAD, REDRIVE): READY,
})  # fmt: skip


def renewed_until(claimed_at: float, now: float, lease_time: float, total_max: float) -> float:
    """Return when a lease that is renewed at `now` ends: `lease_time` from now, but no later
    than `total_max` after the claim. All four in one unit."""
    return min(now + lease_time, claimed_at + total_max)
