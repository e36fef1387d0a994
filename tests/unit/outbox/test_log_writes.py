"""The outbox's log: which facts make which rows, and none without a change."""

from appliance.outbox import wire, writes
from appliance.outbox.sender import INTERRUPTED
from tests.support.outbox import with_paused_pool

COLUMNS = "name, client_message_id, attempt, broker_message_id, error"


def logged(outbox):
    return outbox.rows(f"SELECT {COLUMNS} FROM log ORDER BY event_id")


def test_delivered_send_is_logged_once(outbox):
    outbox.send(key="k1")
    outbox.send(key="k1")
    outbox.clock.pass_seconds(1)
    outbox.round()
    assert logged(outbox) == [
        ("send.accepted", "k1", None, None, None),
        ("attempt.delivered", "k1", 1, "bm_1", None),
    ]
    (facts,) = outbox.rows(
        "SELECT DISTINCT message_id, mesh, target, route, destination_kind, destination_ref,"
        " priority, accepted_ms FROM log"
    )
    send = outbox.row("k1")
    assert facts[:3] == (send.id, "default", "broker")
    assert facts[4:] == ("topic", "alerts", "next", outbox.clock.now_ms() - 1000)
    times = outbox.rows("SELECT at_ms - accepted_ms FROM log ORDER BY event_id")
    assert times == [(0,), (1000,)]


def test_every_attempt_of_a_send_that_is_refused_in_the_end(outbox):
    outbox.broker.fault = lambda _: (503, {"error": "busy"}, None)
    outbox.send(key="k1")
    outbox.round()
    outbox.clock.pass_seconds(60)
    outbox.round()
    outbox.broker.fault = lambda _: (404, {"error": "no such topic"}, None)
    outbox.clock.pass_seconds(60)
    outbox.round()
    rows = logged(outbox)
    assert [row[:3] for row in rows] == [
        ("send.accepted", "k1", None),
        ("attempt.failed", "k1", 1),
        ("attempt.failed", "k1", 2),
        ("attempt.failed", "k1", 3),
        ("send.dead", "k1", None),
    ]
    assert rows[-1][-1] == rows[-2][-1] == outbox.row("k1").last_error


def test_outcome_that_is_recorded_twice_is_logged_once(outbox):
    outbox.send(key="k1")
    row_id = outbox.row("k1").id
    outbox.set("k1", "inflight")
    outcome = writes.DeliveryOutcome(row_id, "delivered", "bm_1", "h_1")
    assert outbox.store.write(writes.record_outcomes, [outcome]) == 1
    assert outbox.store.write(writes.record_outcomes, [outcome]) == 0
    assert len(logged(outbox)) == 2


def test_interrupted_attempts_failed(new_outbox):
    outbox, _ = with_paused_pool(new_outbox)
    outbox.send(key="k1")
    outbox.round()
    outbox.reopen()
    outbox.set("k1", "inflight")
    outbox.sender._may_have_orphans = True
    outbox.sender._release_orphans()
    assert logged(outbox)[1:] == [
        ("attempt.failed", "k1", 1, None, "restarted"),
        ("attempt.failed", "k1", 2, None, INTERRUPTED),
    ]


def test_redrive_drop_and_prune(outbox):
    for name in ("k1", "k2", "k3"):
        outbox.send(key=name)
        outbox.set(name, "dead")
    outbox.admin.redrive(wire.Redrive(id="k1", new_client_id="k9"))
    outbox.admin.drop(wire.Drop("k2"))
    outbox.clock.pass_seconds(1)
    outbox.admin.prune(wire.Prune(confirm=True, dead=True))
    outbox.admin.drop(wire.Drop("k2"))
    assert [row[:2] for row in logged(outbox)[3:]] == [
        ("send.requeued", "k1"),
        ("send.accepted", "k9"),
        ("send.aborted", "k2"),
        ("send.aborted", "k3"),
    ]
