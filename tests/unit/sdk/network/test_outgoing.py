"""Messages that wait: the times of their attempts, their limits, and processes that end."""

import pytest

from appliance.sdk.network import outgoing
from appliance.sdk.network.outgoing import (
    EXPIRY_MS,
    LEASE_MS,
    PENDING_MAX,
    NetworkMessageTooLarge,
    NetworkQueueFull,
    OutgoingMessages,
    SendAttempt,
)


@pytest.fixture
def queue(state):
    return OutgoingMessages(state)


def attempt(at_ms, problem="offline", **more):
    return SendAttempt(at_ms, "offline", problem=problem, **more)


def run(queue, message_id, until_ms, **more):
    """The times of all attempts of a message that is never delivered."""
    now_ms, times = 0, []
    while now_ms <= until_ms:
        claimed = queue.claim(now_ms)
        if claimed is None:
            break
        times.append(now_ms)
        now_ms = queue.record(claimed.report, attempt(now_ms, **more), now_ms).due_ms
    return times, queue.report(message_id).status


def test_attempts_follow_the_schedule_until_the_message_expires(queue):
    message_id = queue.add("bert", {"text": "hi"}, "direct", 0)
    times, status = run(queue, message_id, EXPIRY_MS)
    assert times[:5] == [0, 10_000, 40_000, 130_000, 190_000]
    assert (times[-1], status) == (EXPIRY_MS, "expired")


@pytest.mark.parametrize("lease_ms", [0, LEASE_MS])
def test_message_of_a_process_that_ended_is_claimed_again(queue, lease_ms):
    """`send` adds it with a lease, so that no other thread delivers it meanwhile."""
    message_id = queue.add("bert", {}, "direct", 0, lease_ms)
    assert (queue.claim(0) is None) is (lease_ms > 0)
    assert queue.claim(LEASE_MS - 1) is None
    assert queue.claim(LEASE_MS).report.message_id == message_id


def test_queue_is_bounded(queue, monkeypatch):
    ids = [queue.add("bert", {}, "direct", 0) for _ in range(PENDING_MAX)]
    with pytest.raises(NetworkQueueFull):
        queue.add("bert", {}, "direct", 0)
    claimed = queue.claim(0)
    queue.record(claimed.report, attempt(0, None), 0)
    monkeypatch.setattr(outgoing, "REPORTS_MAX", 10)
    queue.add("bert", {}, "direct", 0)
    assert ids[0] not in {report.message_id for report in queue.reports()}
    with pytest.raises(NetworkMessageTooLarge):
        queue.add("bert", {"text": "x" * 200_000}, "direct", 0)


def test_only_the_recipients_first_receipt_counts(queue):
    message_id = queue.add("bert", {}, "direct", 0)
    assert not queue.note_receipt(message_id, "cleo", 5)
    assert queue.note_receipt(message_id, "bert", 6)
    assert not queue.note_receipt(message_id, "bert", 7)
    assert queue.report(message_id).receipt_ms == 6
