"""The small pure parts: patterns, alarms, ids, buckets, views, credit."""

import gc
import random
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.courier.alarm import Alarm
from appliance.courier.bucket import Bucket
from appliance.courier.credit import HOLD_MS, LEAD_MAX, Taker
from appliance.courier.item import Item, Options
from appliance.courier.policy import Policy, matches, most_specific
from appliance.courier.queue import Queue
from appliance.courier.recent import RecentIds
from appliance.courier.ring import Ring
from appliance.courier.view import View, Watcher, is_inbox


@pytest.mark.parametrize(
    ("glob", "name", "expected"),
    [
        ("agents/*", "agents/Jen/inbox", True),
        ("agents/*/inbox", "agents/Jen/inbox", True),
        ("agents/*/inbox", "agents/Jen/outbox", False),
        ("*", "anything/at/all", True),
        ("agents/J?n", "agents/Jen", False),
        ("a[b]", "ab", False),
        ("a[b]*", "a[b]c", True),
        ("agents/Jen", "agents/Jen", True),
        ("agents/Jen", "agents/Jenny", False),
    ],
)
def test_star_stands_for_anything_and_nothing_else_is_special(glob, name, expected):
    assert matches(glob, name) is expected


def test_most_specific_pattern_wins():
    globs = ["*", "agents/*", "agents/*/inbox", "agents/Jen/inbox"]
    assert most_specific(globs, "agents/Jen/inbox") == "agents/Jen/inbox"
    assert most_specific(globs, "agents/Bo/inbox") == "agents/*/inbox"
    assert most_specific(globs, "agents/Bo/outbox") == "agents/*"
    assert most_specific(["a/*"], "b") is None


class Bell:
    def __init__(self):
        self.stamp, self.deadline = 0, 0.0


@given(st.lists(st.tuples(st.sampled_from("sc"), st.integers(0, 5), st.integers(0, 100))))
def test_alarm_tells_each_instant_once_and_in_order(steps):
    alarm, bells, wanted = Alarm(), [Bell() for _ in range(6)], {}
    for what, number, at in steps:
        if what == "s":
            alarm.set(bells[number], at)
            wanted[number] = at
        else:
            alarm.cancel(bells[number])
            wanted.pop(number, None)
    rung = alarm.due(50, 100)
    assert [bell.deadline for bell in rung] == sorted(at for at in wanted.values() if at <= 50)
    assert len(alarm.due(1000, 100)) == sum(at > 50 for at in wanted.values())
    assert alarm.due(10_000, 100) == []


def test_cancelled_alarms_do_not_pile_up():
    alarm, bell = Alarm(), Bell()
    for at in range(100_000):
        alarm.set(bell, at)
    assert len(alarm) < 5_000


def test_recent_ids_are_bounded_in_number_and_time():
    recent = RecentIds(3, seconds=10)
    for id_ in "abcd":
        recent.add(id_)
    assert "a" not in recent
    assert "d" in recent
    recent.age(1_000)
    recent.add("e")
    assert recent.age(11_000) == 2  # c and d; b was pushed out by e
    assert "d" not in recent
    assert "e" in recent


def test_a_stream_at_rest_costs_no_memory_by_the_second():
    recent = RecentIds(3, seconds=1000)
    recent.add("a")
    recent.age(0)
    before = footprint(recent)
    for second in range(900):
        recent.age(second * 1000.0)
    assert footprint(recent) == before
    assert recent.age(1_000_000.0) == 1


def test_envelopes_of_many_keys_that_came_and_went_leave_nothing_behind():
    """One that stays kept all that came behind it and expired, beyond every limit."""
    queue = Queue(lambda _: Policy(), 1e12)
    ring = queue.open("s", 0.0)
    ring.put("stays", b"x", 0.0, Options(key="stays"))
    for number in range(5_000):
        ring.put(f"e{number}", b"x", float(number), Options(key=f"k{number}", ttl_ms=1))
        queue.tick(number + 1.0, 100)
    assert len(ring.items) == 1
    assert footprint(ring.lanes) < 1_000


def footprint(one):
    """How many objects hang on it."""
    seen, waiting = set(), [one]
    while waiting:
        found = waiting.pop()
        if id(found) not in seen and not isinstance(found, type | ModuleType | Queue | Ring):
            seen.add(id(found))
            waiting += gc.get_referents(found)
    return len(seen)


def test_bucket_lets_the_average_through_whatever_the_batches():
    bucket, now, taken = Bucket(100.0, 100.0, 0.0), 0.0, 0
    chance = random.Random(7)
    while now < 60_000:
        cost = chance.choice([1, 5, 250])
        wait = bucket.take(cost, now)
        if wait:
            now += wait * 1000 + 0.001
        else:
            taken += cost
    assert 5_900 <= taken <= 6_500


def test_view_tells_changes_after_its_watermark_and_keeps_only_the_last_of_each_row():
    view, woken = View("v", rows_max=10, bytes_max=100), []
    view.put("a", 1)
    watcher = Watcher(lambda: woken.append(1), lambda key: key != "hidden")
    assert view.watch(watcher) == 1
    for key, row in (("a", 2), ("b", 1), ("b", 2), ("hidden", 1), ("c", 1)):
        view.put(key, row)
    view.remove("c")
    assert watcher.take(10) == [("a", 2, "update", 2), ("b", 4, "add", 2)]
    view.remove("a")
    assert watcher.take(10) == [("a", 8, "remove", 2)]
    assert woken


def test_view_keeps_what_changed_last_within_its_rows_and_bytes():
    view = View("v", rows_max=3, bytes_max=10)
    watcher = Watcher(lambda: None, lambda _: True)
    for key in ("a", "b", "c"):
        assert view.put(key, b"123") == []
    view.watch(watcher)
    assert view.put("a", b"321") == []  # no longer the one that changed first
    assert view.put("d", b"1") == ["b"]
    assert view.put("e", b"1234567") == ["c", "a"]
    assert (list(view.rows), view.bytes) == (["d", "e"], 8)
    assert [(key, change) for key, _, change, _ in watcher.take(10)] == [
        ("d", "add"), ("b", "remove"), ("e", "add"), ("c", "remove"), ("a", "remove")
    ]  # fmt: skip
    assert view.put("f", b"more than fits at all") == ["d", "e"]
    view.remove("f")
    assert view.bytes == 0


def test_watcher_with_credit_gets_no_more_than_it_granted():
    view = View("v", rows_max=10, bytes_max=100)
    watcher = Watcher(lambda: None, lambda _: True, credit=1)
    view.watch(watcher)
    view.put("a", 1)
    view.put("b", 1)
    assert len(watcher.take(10)) == 1
    assert watcher.take(10) == []
    watcher.credit = 5
    assert len(watcher.take(10)) == 1


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        ("agents/Jen/inbox", True),
        ("agents/Jen/outbox", False),
        ("agents//inbox", False),
        ("agents/a/b/inbox", False),
        ("agents/inbox", False),
    ],
)
def test_only_inboxes_of_agents_enter_latest_per_agent(stream, expected):
    assert is_inbox(stream) is expected


def table(takers: int, credit: int = 1) -> tuple[Queue, list[Taker]]:
    queue = Queue(lambda _: Policy(), 1e12)
    seated = [Taker(str(number), "", lambda: None) for number in range(takers)]
    for taker in seated:
        queue.subscribe(taker, "s", 0.0)
        queue.grant(taker, credit, 0.0)
    return queue, seated


def test_saturated_stream_is_fair_whoever_is_quicker():
    """Sixteen takers with credit 1, some ten times quicker than others, none slow."""
    queue, seated = table(16)
    ring, chance, now = queue.open("s", 0.0), random.Random(3), 0.0
    shares = dict.fromkeys(seated, 0)
    back = {}
    for number in range(20_000):
        ring.put(f"e{number}", b"x", now)
        if number < 64:
            continue
        queue.deal(ring, now)
        for taker in seated:
            if taker.out:
                shares[taker] += len(taker.out)
                queue.finish(taker, [item.id for item in taker.out])
                taker.out = []
                back[taker] = now + chance.choice([0.1, 0.2, 1.0])
        now += 0.05
        for taker in [one for one, at in back.items() if at <= now]:
            del back[taker]
            queue.grant(taker, 1, now)
    assert min(shares.values()) / max(shares.values()) >= 0.95


def test_slow_taker_delays_nobody_for_long():
    """Who keeps its envelope for a second is waited for once, and then no more."""
    queue, (slow, quick) = table(2)
    ring, now = queue.open("s", 0.0), 0.0
    delivered = 0
    for number in range(3_000):
        ring.put(f"e{number}", b"x", now)
        queue.deal(ring, now)
        if quick.out:
            delivered += 1
            queue.finish(quick, [quick.out.pop().id])
            queue.grant(quick, 1, now)
        if slow.out and now % 1000 < 1:
            queue.finish(slow, [slow.out.pop().id])
            queue.grant(slow, 1, now)
        now += 1
    assert delivered > 2_900


def test_returning_seat_starts_level_and_does_not_catch_up():
    queue, (steady, late) = table(2, credit=0)
    ring, now = queue.open("s", 0.0), 100 * HOLD_MS
    for number in range(100):
        ring.put(f"e{number}", b"x", now)
    queue.grant(steady, 60, now)
    assert len(steady.out) == 60
    queue.grant(late, 40, now)
    assert len(late.out) == LEAD_MAX  # the other may come back at once
    queue.release_holds(now + HOLD_MS)
    assert len(late.out) == 40
    for number in range(100, 110):
        ring.put(f"e{number}", b"x", now)
    now += 100 * HOLD_MS
    for taker in (steady, late):
        taker.grant(5, now)
    queue.deal(ring, now)
    assert len(steady.out) == 65
    assert len(late.out) == 45


def test_nothing_of_a_key_overtakes_what_came_back():
    queue, (taker,) = table(1, credit=1)
    ring = queue.open("s", 0.0)
    keyed = Options(key="k")
    for id_ in ("a", "b"):
        ring.put(id_, b"x", 0.0, keyed)
    ring.put("free", b"x", 0.0)
    queue.deal(ring, 0.0)
    first = taker.inflight["a"]
    ring.fail(first, 1.0, delay_ms=500)
    queue.grant(taker, 5, 2.0)
    assert [item.id for item in taker.out] == ["a", "free"]
    queue.tick(600.0, 100)
    assert [item.id for item in taker.out] == ["a", "free", "a"]
    queue.finish(taker, ["a"])
    queue.settled(first, 601.0)
    assert taker.out[-1].id == "b"


def test_waiting_raises_a_low_priority_so_that_it_never_starves():
    queue = Queue(lambda _: Policy(aging_ms=1000), 1e12)
    ring = queue.open("s", 0.0)
    ring.put("low", b"x", 0.0, Options(priority=0))
    taker = Taker("t", "", lambda: None)
    queue.subscribe(taker, "s", 0.0)
    order = []
    for number in range(20):
        now = number * 1000.0
        ring.put(f"high{number}", b"x", now, Options(priority=9))
        queue.grant(taker, 1, now)
        order.append(taker.out[-1].id)
    assert "low" in order
    assert order[0] == "high0"
    assert order.index("low") <= 10


def test_pattern_is_served_from_all_its_streams_in_turn():
    queue = Queue(lambda _: Policy(), 1e12)
    for name in ("a/1", "a/2", "b"):
        ring = queue.open(name, 0.0)
        for number in range(50):
            ring.put(f"{name}-{number}", b"x", 0.0)
    taker = Taker("t", "", lambda: None)
    queue.subscribe(taker, "a/*", 0.0)
    queue.grant(taker, 40, 0.0)
    counts = {name: sum(i.ring.name == name for i in taker.out) for name in queue.rings}
    assert counts == {"a/1": 20, "a/2": 20, "b": 0}
    late = queue.open("a/3", 1.0)
    queue.grant(taker, 1, 1.0)
    late.put("new", b"x", 1.0)
    assert [seat.ring.name for seat in taker.seats] == ["a/1", "a/2", "a/3"]


def test_ids_of_two_streams_may_be_equal_for_a_pattern():
    queue = Queue(lambda _: Policy(), 1e12)
    taker = Taker("t", "", lambda: None)
    queue.subscribe(taker, "*", 0.0)
    queue.grant(taker, 5, 0.0)
    for name in ("a", "b"):
        ring = queue.open(name, 0.0)
        ring.put("same", b"x", 0.0)
        queue.deal(ring, 0.0)
    assert len(taker.inflight) == 2
    assert queue.finish(taker, ["same", "same", "same"]) == ["same"]
    assert taker.inflight == {}


def test_a_pattern_that_holds_much_answers_false_acks_without_a_search():
    """Ten thousand false acks beside ten thousand leases once took half a minute."""
    queue = Queue(lambda _: Policy(), 1e12)
    taker = Taker("t", "", lambda: None)
    queue.subscribe(taker, "*", 0.0)
    queue.grant(taker, 3, 0.0)
    for name in "abc":
        ring = queue.open(name, 0.0)
        ring.put("same", b"x", 0.0)
        queue.deal(ring, 0.0)
    taker.inflight = Unwalked(taker.inflight)
    assert taker.find("other") is None
    assert queue.finish(taker, ["other", "same", "same", "same", "same"]) == ["other", "same"]
    assert (taker.inflight, taker.twins) == ({}, {})


class Unwalked(dict):
    def __iter__(self):
        raise AssertionError("somebody walks over all that is held")

    keys = values = items = __iter__


def test_idle_streams_are_forgotten_and_their_counts_kept():
    queue = Queue(lambda _: Policy(recent_seconds=1), 10_000)
    taker = Taker("t", "", lambda: None)
    queue.subscribe(taker, "s", 0.0)
    ring = queue.open("s", 0.0)
    queue.grant(taker, 1, 0.0)
    ring.put("a", b"x", 0.0)
    queue.deal(ring, 0.0)
    queue.finish(taker, ["a"])
    queue.close(taker, 0.0)
    for second in range(1, 30):
        queue.tick(second * 1000.0, 10)
    assert queue.rings == {}
    assert queue.past["other"].acked == 1


def test_a_pattern_keeps_no_stream_that_nobody_uses():
    queue = Queue(lambda _: Policy(recent_seconds=1), 10_000)
    taker, named = Taker("t", "", lambda: None), Taker("n", "", lambda: None)
    queue.subscribe(taker, "*", 0.0)
    queue.subscribe(named, "named", 0.0)
    queue.grant(taker, 5, 0.0)
    for number in range(50):
        ring = queue.open(f"task/{number}", 0.0)
        ring.put("a", b"x", 0.0)
    queue.deal(ring, 0.0)
    for _ in range(10):
        queue.finish(taker, [item.id for item in taker.out])
        taker.out = []
        queue.grant(taker, 5, 0.0)
    for second in range(1, 60):
        queue.tick(second * 1000.0, 10)
    assert list(queue.rings) == ["named"]
    assert [seat.ring.name for seat in taker.seats] == ["named"]
    queue.grant(taker, 5, 60_000.0)
    again = queue.open("task/7", 60_000.0)
    again.put("b", b"x", 60_000.0)
    queue.deal(again, 60_000.0)
    assert [item.id for item in taker.out] == ["b"]
    assert queue.leases() == taker.out


def test_item_is_small():
    assert not hasattr(Item(None, "a", b"", 1, 0.0), "__dict__")
