"""Webhooks of triggers in the outbox: the same call is accepted once."""

from functools import partial

import pytest

from appliance.integrations.courier_outbox import send_trigger_webhook
from appliance.outbox import wire


class FakeOutbox:
    """Remembers sends, and refuses those that `error` is raised for."""

    def __init__(self):
        self.sends, self.error = [], None

    def send(self, send, *, internal, principal):
        self.sends.append((send, internal, principal))
        if self.error:
            raise self.error


@pytest.fixture
def outbox():
    return FakeOutbox()


def test_id_of_a_send_depends_on_rule_address_and_payload(outbox):
    post = partial(send_trigger_webhook, outbox)
    post("https://a", "rule-1", {"x": 1, "y": 2})
    post("https://a", "rule-1", {"y": 2, "x": 1})
    for other in (("https://b", "rule-1", {}), ("https://a", "rule-2", {}), ("https://a", "r", {})):
        post(*other)
    first, again, *others = [send.client_message_id for send, _, _ in outbox.sends]
    assert first == again
    assert len({first, *others}) == 4
    assert outbox.sends[0][1:] == (True, "appliance:courier")


def test_only_a_full_outbox_is_an_error_for_a_repeated_call(outbox):
    outbox.error = wire.IdReused()
    send_trigger_webhook(outbox, "https://a", "rule", {})
    outbox.error = wire.InsufficientStorage()
    with pytest.raises(wire.InsufficientStorage):
        send_trigger_webhook(outbox, "https://a", "rule", {})
    assert len(outbox.sends) == 2
