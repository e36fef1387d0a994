"""Destinations whose sends are delivered in order."""

import pytest

from appliance.outbox import ordering
from appliance.outbox.mail import MailTarget
from appliance.outbox.sender import outgoing
from appliance.outbox.settings import MailSettings, OrderedDestination
from tests.support.outbox import with_paused_pool


def test_sends_behind_a_failed_one_wait_untried(new_outbox):
    """The broker accepts the sends before a failed one, and to other destinations."""
    outbox = new_outbox(in_order=(OrderedDestination(),))
    failing = []
    outbox.broker.fault = lambda item: (
        failing.append(item) or (503, None, None)
        if item["destination_ref"] == "a" and (failing or item["body"] == "2")
        else None
    )
    for number in range(5):
        outbox.send(str(number), key=f"k{number}", to="#a")
    outbox.send("b", to="#b")
    outbox.round()
    assert [outbox.row(f"k{number}").attempts for number in range(5)] == [0, 0, 1, 0, 0]
    outbox.broker.fault = lambda _item: None
    outbox.round()
    assert outbox.broker.bodies == ["0", "1", "b"]
    outbox.clock.pass_seconds(31)
    outbox.round()
    assert outbox.broker.bodies == ["0", "1", "b", "2", "3", "4"]


def test_interrupted_run_is_repeated_in_order(new_outbox):
    """After a kill the outcomes of a run are unknown: the broker recognizes what it has."""
    outbox, pool = with_paused_pool(new_outbox, in_order=(OrderedDestination(),))
    for number in range(4):
        outbox.send(str(number))
    outbox.round()
    _, (_, target, rows) = pool.work.pop()
    target.deliver_many([outgoing(row) for row in rows[:2]])
    outbox.reopen()
    outbox.clock.pass_seconds(31)
    outbox.round()
    assert outbox.broker.bodies == ["0", "1", "2", "3"]
    assert set(outbox.statuses().values()) == {"done"}


IN_ORDER = [
    (OrderedDestination(to="#a"), "#a"),
    (OrderedDestination(mesh="default", to="#a"), "#a"),
    (OrderedDestination(mesh="default"), "#a"),
    (OrderedDestination(), "#a"),
    (OrderedDestination(to="A" * 64), f"dm:{'a' * 64}"),
    (OrderedDestination(to="queue:q1"), "queue:q1"),
    (OrderedDestination(to="mailto:a@EXAMPLE.com"), "mailto:a@example.com"),
    (OrderedDestination(), "mailto:a@example.com"),
]


@pytest.mark.parametrize(("rule", "to"), IN_ORDER)
def test_configured_destination_is_ordered(new_outbox, rule, to):
    outbox = new_outbox(in_order=(rule,))
    outbox.targets["mail"] = MailTarget(MailSettings(sender="me@example.org", allow=("*",)), "ws")
    outbox.send(to=to)
    ((route,),) = outbox.rows("SELECT route FROM outbox")
    assert ordering.is_in_order(route)
