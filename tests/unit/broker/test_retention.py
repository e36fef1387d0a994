"""Retention: messages go and their ids say so, ids go when it is time, nothing is orphaned."""

import pytest

from appliance.broker import retention, wire
from appliance.broker.rate_limit import Limiter
from appliance.broker.settings import DAY_MS
from tests.support.broker import House, key

DAY_SECONDS = 86_400


@pytest.fixture
def house(tmp_path):
    house = House(tmp_path)
    yield house
    assert house.orphans() == []
    house.close()


def keep(house, mode="retention_scoped", dedupe=14, messages=7):
    house.registry.change_mesh("lab", wire.ChangeMesh(mode, dedupe, messages))


def sweep(house):
    return house.retention.sweep(house.clock.now_ms())


def test_removed_message_leaves_its_id_which_says_so(house):
    keep(house)
    _, first = house.send("m1", meta={"mentions": ["bert"]})
    house.clock.pass_seconds(7 * DAY_SECONDS)
    assert sweep(house) == {"messages": 0, "ids": 0}
    house.clock.pass_seconds(1)
    assert sweep(house) == {"messages": 1, "ids": 0}
    assert house.counts() == {
        "client_message_dedupe": 1,
        "topic_message": 0,
        "message_queue": 0,
        "message_history": 0,
        "delivery_queue": 0,
        "mention_index": 0,
    }
    assert house.count("message_tombstone") == 1
    assert house.orphans() == []
    status, again = house.send("m1", meta={"mentions": ["bert"]})
    assert (status, again["history_available"]) == (200, False)
    assert again["broker_message_id"] == first["broker_message_id"]
    assert house.send("m1", "else")[0] == 409


def test_id_is_forgotten_when_its_time_is_over_and_can_be_used_again(house):
    keep(house)
    house.send("m1")
    house.clock.pass_seconds(14 * DAY_SECONDS)
    assert sweep(house) == {"messages": 1, "ids": 1}
    assert house.count("message_tombstone") == 0
    assert house.send("m1", "else")[0] == 201


def test_permanent_ids_are_never_forgotten(house):
    keep(house, "permanent")
    house.send("m1")
    house.clock.pass_seconds(3_000 * DAY_SECONDS)
    assert sweep(house) == {"messages": 1, "ids": 0}
    assert house.send("m1")[0] == 200


def test_id_with_a_delivery_outstanding_is_not_forgotten(house):
    """Else the orphan check would call a legal setting a fault."""
    keep(house, dedupe=7, messages=30)
    house.send("m1", to="bert")
    house.clock.pass_seconds(8 * DAY_SECONDS)
    assert sweep(house) == {"messages": 0, "ids": 0}
    assert house.orphans() == []
    house.connect("bert").turn()
    assert sweep(house) == {"messages": 0, "ids": 1}


def test_sweep_runs_once_a_day_also_across_restarts(tmp_path):
    house = House(tmp_path)
    keep(house)
    house.send("m1")
    assert house.retention.run_once(house.clock.now_ms()) == {"messages": 0, "ids": 0}
    assert house.rows("SELECT value FROM meta WHERE key = 'swept_ms'") != []
    house.close()
    house.clock.pass_seconds(8 * DAY_SECONDS)
    again = House(tmp_path, clock=house.clock)
    assert again.retention.run_once(house.clock.now_ms())["messages"] == 1
    again.send("m2")
    house.clock.pass_seconds(DAY_SECONDS - 1)
    assert again.retention.run_once(house.clock.now_ms()) == {"messages": 0, "ids": 0}
    again.close()


def test_large_sweep_goes_in_pieces_and_is_not_over_before_all_is(tmp_path):
    house = House(tmp_path, sweep_rows_max=3, sweep_rounds_max=3)
    keep(house)
    for number in range(10):
        house.send(f"m{number}", to="bert")
    house.clock.pass_seconds(8 * DAY_SECONDS)
    assert sweep(house)["messages"] == 9
    assert house.registry.status().swept_at is None
    assert sweep(house)["messages"] == 1
    assert house.registry.status().swept_at is not None
    house.close()


def test_orphan_is_counted_logged_and_told(tmp_path):
    house = House(tmp_path)
    _, body = house.send("m1")
    message_id = body["broker_message_id"]
    house.store.write(
        lambda tx: tx.execute("DELETE FROM topic_message WHERE id = ?", (message_id,)) and None
    )
    assert house.orphan_check.run_once(house.clock.now_ms()) == {"orphans": 1}
    assert house.orphan_check.run_once(house.clock.now_ms()) == {"orphans": 1}
    house.clock.pass_seconds(DAY_SECONDS)
    assert house.orphan_check.run_once(house.clock.now_ms()) == {"orphans": 1}
    assert house.rows("SELECT value FROM meta WHERE key = 'checked_ms'") == [
        (str(house.clock.now_ms()),)
    ]
    [found] = house.orphans()
    assert (found.rule, found.mesh, found.broker_message_id) == ("message", "lab", message_id)
    assert house.lines.entries()[-1]["msg"] == "broker_atomicity_violation_found"
    assert house.registry.status().orphans == 1
    house.close()


# -- pure --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "dedupe", "messages", "wrong"),
    [
        ("retention_scoped", 30, 31, True),
        ("retention_scoped", 30, 30, False),
        ("permanent", 30, 3000, False),
    ],
)
def test_ids_kept_for_a_shorter_time_than_messages_are_a_misconfiguration(
    mode, dedupe, messages, wrong
):
    assert retention.is_misconfigured(mode, dedupe, messages) is wrong


def test_time_an_id_is_kept():
    assert retention.keeps_ms("retention_scoped", 7) == 7 * DAY_MS
    assert retention.keeps_ms("permanent", 7) is None


@pytest.mark.parametrize(
    ("last", "due"), [(None, True), (0, True), (1, False), (DAY_MS, False), (DAY_MS + 1, True)]
)
def test_sweep_is_due_after_its_time_and_when_the_clock_went_back(last, due):
    assert retention.is_due(DAY_MS, last, 24.0) is due


def test_limit_lets_a_second_through_and_then_its_rate():
    limiter = Limiter(10)
    assert [limiter.take("m", 1, 0.0) for _ in range(11)] == [1] * 10 + [0]
    assert limiter.wait_seconds("m", 0.0) == pytest.approx(0.1)
    assert limiter.take("m", 5, 0.25) == 2
    assert limiter.take("other", 10, 0.25) == 10
    limiter.give_back("m", 100, 0.25)
    assert limiter.take("m", 100, 0.25) == 10
    assert Limiter(0).take("m", 1000, 0.0) == 1000


def test_unknown_member_has_no_name(house):
    with pytest.raises(wire.NoSuchMember):
        house.registry.rename_member("lab", key("nobody"), wire.RenameMember("x"))
