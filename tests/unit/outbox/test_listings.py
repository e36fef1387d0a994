"""Listings: pages, and sends of a destination in each state."""

from appliance.outbox import wire


def test_sends_are_listed_by_destination_in_each_state_and_in_order(outbox):
    for number in range(6):
        outbox.send(key=f"k{number}", to="#alerts" if number % 2 else "#other")
    outbox.set("k1", "done")
    outbox.set("k3", "dead")

    def listed(**query):
        page = outbox.service.list_sends(wire.ListQuery(to="#alerts", **query))
        return [row.client_message_id for row in page.sends]

    assert listed() == ["k5", "k3", "k1"]
    assert listed(after="out_0") == ["k1", "k3", "k5"]
    assert listed(status="done") == ["k1"]
    assert listed(status="dead") == ["k3"]
    assert listed(status="pending") == ["k5"]
