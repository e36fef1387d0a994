"""What durable streams remember, on a real file: the courier ends, and another one begins."""

import pytest

from appliance.courier import writes
from appliance.courier.envelope import parse
from appliance.courier.journal import BLOCK
from appliance.courier.view import LATEST
from appliance.courier.wire import OneQuery, Pause, Selection
from appliance.kernel.errors import Unavailable
from tests.support.courier import ANYBODY, raw
from tests.support.courier import INBOX as STREAM
from tests.support.courierlife import Life


@pytest.fixture
def life(tmp_path):
    lives = []

    def begin(**values):
        lives.append(Life(tmp_path, **values))
        return lives[-1]

    yield begin
    for one in lives:
        one.store.close(10)


def test_what_was_acked_lately_is_a_duplicate_after_a_start_as_well(life):
    one = life()
    one.put("a", "b")
    taker, items = one.take(1)
    one.courier.ack(taker, [items[0].id])
    one.again()
    assert one.put("a", "c").duplicates == 1
    assert one.ids() == ["b", "c"]


def test_acked_ids_are_bounded_in_number_and_time(life):
    one = life(recent_max=3, recent_seconds=60.0)
    for number in range(10):
        one.put(f"e{number}")
        taker, items = one.take()
        one.courier.ack(taker, [item.id for item in items])
    one.again()
    assert len(one.rows("acked")) == 3
    assert one.put("e6", "e7", "e8", "e9").duplicates == 3
    taker, items = one.take()
    one.courier.ack(taker, ["e6"])  # stands where the oldest stood
    one.again()
    assert sorted(row[3] for row in one.rows("acked")) == ["e6", "e8", "e9"]
    one.clock.pass_seconds(61)
    one.again()
    assert one.rows("acked") == []


def test_failed_attempts_are_kept_over_redrive_and_start(life):
    one = life(deliveries_max=5, backoff_ms=0, history_max=2)
    one.put("a")
    one.nack("fail", "first")
    one.nack("release")
    one.nack("fail", "second")
    one.nack("reject", "third")
    one.again()
    one.operator.redrive(ANYBODY, Selection(STREAM))
    one.again()
    kept = one.operator.one(ANYBODY, OneQuery(STREAM, "a"))
    assert (kept.state, kept.attempts) == ("ready", 0)
    told = [(one.outcome, one.error, one.holder) for one in kept.history]
    assert told == [("failed", "second", "anybody"), ("rejected", "third", "anybody")]
    taker, _ = one.take()
    one.courier.ack(taker, ["a"])
    one.courier.inserts.flush()
    assert one.rows("attempts") == one.rows("journal") == []


def test_what_was_paused_stays_so_and_for_as_long(life):
    one = life()
    one.put("a")
    one.put("b", stream="other")
    one.operator.pause(ANYBODY, Pause(STREAM))
    one.operator.pause(ANYBODY, Pause("other", 60.0))
    one.operator.pause(ANYBODY, Pause("empty"))
    one.again()
    assert one.ids() == []
    assert one.take(stream="other")[1] == []
    assert one.ring("empty").paused
    one.clock.pass_seconds(60.1)
    one.again()
    assert [item.id for item in one.take(stream="other")[1]] == ["b"]
    one.courier.queue.resume(one.ring(), one.courier.now())
    one.again()
    assert one.ids() == ["a"]


def test_the_latest_of_each_inbox_is_known_after_a_start_though_it_was_acked(life):
    one = life(view_rows_max=2)
    for name in ("Jen", "Bo", "Xi"):
        one.put(f"old-{name}", f"new-{name}", stream=f"agents/{name}/inbox")
    one.put("x", stream="no/inbox/at/all")
    taker, items = one.take(stream="agents/Xi/inbox")
    one.courier.ack(taker, [item.id for item in items])
    one.again()
    rows = one.courier.views[LATEST].rows
    assert list(rows) == ["agents/Bo/inbox", "agents/Xi/inbox"]
    assert b'"new-Xi"' in rows["agents/Xi/inbox"]
    assert len(one.rows("latest")) == 2


def test_what_a_dying_writer_stored_and_told_nobody_is_taken_up(life):
    one = life()
    one.put("a")
    entry = one.courier.inserts._entry(one.ring(), raw_parsed("b"))
    one.store.write(writes.append, [entry], False, 2)  # committed; its producer heard nothing
    one.courier.inserts.look_again()
    one.courier.inserts.look_again()
    assert one.put("b").duplicates == 1
    assert one.ids() == ["a", "b"]


def raw_parsed(id_):
    return parse(raw(id_), STREAM, 10_000)


def test_what_the_journal_could_not_hear_it_hears_later_and_in_order(life, monkeypatch):
    one = life()
    one.put("a", "b")
    taker, _ = one.take()
    one.courier.ack(taker, ["a"])
    one.courier.nack(taker, ["b"], "reject", error="no")

    def refuse(*_):
        one.operator.redrive(ANYBODY, Selection(STREAM))  # while it is being written
        raise Unavailable("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(one.courier.journal, "apply", refuse)
        with pytest.raises(Unavailable):
            one.courier.inserts.flush()
    one.again()
    assert [row[2] for row in one.rows("journal")] == ["b"]
    assert one.ids() == ["b"]


def test_what_waits_for_a_journal_that_hears_nothing_is_bounded(life, monkeypatch):
    one = life(backoff_ms=0, history_max=2)
    one.put("acked", "dead", "waits")

    def refuse(*_):
        raise Unavailable("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(one.courier.journal, "apply", refuse)
        patch.setattr(one.courier.inserts, "_fold_at", 50)
        for number in range(1000):
            one.nack("fail", f"no {number}", most=3)
            with pytest.raises(Unavailable):
                one.courier.inserts.flush()
            one.courier.inserts._fold_at = 50
        assert len(one.courier.queue.changes) <= 50
        taker, _ = one.take()
        one.courier.ack(taker, ["acked"])
        one.courier.nack(taker, ["dead"], "reject", error="never")
        one.courier.nack(taker, ["waits"], "fail", error="last")
    one.again()
    kept = {id_: one.operator.one(ANYBODY, OneQuery(STREAM, id_)) for id_ in ("dead", "waits")}
    assert (kept["dead"].state, kept["dead"].attempts, kept["dead"].error) == (
        "dead",
        1001,
        "never",
    )
    assert (kept["waits"].state, kept["waits"].attempts) == ("ready", 1001)
    assert [one.error for one in kept["waits"].history] == ["no 999", "last"]
    assert one.put("acked").duplicates == 1


def test_a_dead_letter_remembers_when_it_died(life):
    one = life()
    one.put("a")
    one.clock.pass_seconds(60)
    one.nack("reject", "never")
    one.courier.inserts.flush()
    before = one.operator.one(ANYBODY, OneQuery(STREAM, "a"))
    one.clock.pass_seconds(60)
    one.again()
    after = one.operator.one(ANYBODY, OneQuery(STREAM, "a"))
    assert after.dead_at == before.dead_at != before.enqueued_at


def test_a_stream_that_is_forgotten_leaves_nothing_behind(life):
    one = life(idle_seconds=1.0, recent_seconds=2.0)
    one.put("a")
    taker, _ = one.take()
    one.courier.ack(taker, ["a"])
    for _ in range(10):
        one.clock.pass_seconds(1)
        one.courier.queue.tick(one.courier.now(), 100)
    assert STREAM not in one.courier.queue.rings
    one.courier.inserts.flush()
    assert one.rows("acked") == []


def test_a_number_is_given_once_though_its_row_is_gone(life):
    one = life()
    one.put("a", "b")
    given = [row[0] for row in one.rows("journal")]
    taker, items = one.take()
    one.courier.ack(taker, [item.id for item in items])
    one.again()
    assert one.rows("journal") == []
    one.put("c")
    assert [row[0] for row in one.rows("journal")] > given


def test_few_inserts_write_the_sequence(life):
    one = life()
    one.put("a")
    (before,) = one.rows("sqlite_sequence")
    one.put("b", "c")
    assert one.rows("sqlite_sequence") == [before]
    one.put(*(f"d{n}" for n in range(BLOCK // 2)))
    one.put(*(f"e{n}" for n in range(BLOCK // 2)))
    assert one.rows("sqlite_sequence") > [before]
