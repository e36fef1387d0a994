"""What other subsystems put into the outbox, and what it delivers for them."""

import pytest

from appliance.hub.webhooks.service import OutgoingEvent
from appliance.integrations.notify_outbox import OutboxNotices
from appliance.integrations.webhooks_outbox import (
    WebhookPost,
)
from appliance.kernel.errors import Unavailable
from appliance.operations.wire import Notice
from appliance.outbox.target import Delivered, DeliveryTarget, RetryLater
from appliance.workspace.datadir import DataDir
from tests.support.outbox import OutboxFixture
from tests.unit.hub.ask.conftest import new_file_in

NOTICE = Notice("n1", "ws", "now", "new: error", "the disk is full")


class ScriptedReceiver(DeliveryTarget):
    """Keeps what it gets, and replies with `result`."""

    waiting_max = None

    def __init__(self, name):
        self.name, self.got, self.result = name, [], Delivered()

    def resolve(self, to):
        return "queue", to, to

    def deliver(self, send):
        self.got.append(send)
        return self.result


@pytest.fixture
def outbox(tmp_path):
    new_file_in(tmp_path)
    fixture = OutboxFixture(DataDir(tmp_path).database("outbox"), sends_max=4)
    fixture.targets |= {name: ScriptedReceiver(name) for name in ("webhook", "mail")}
    yield fixture
    fixture.store.close()


def test_events_are_taken_up_to_the_first_that_does_not_fit(outbox):
    post = WebhookPost(outbox.service)
    events = [OutgoingEvent("hook_1", n, f"k{n}", f"msg_{n}", f"body {n}") for n in range(5)]
    assert post.accept(events[:2]) == 2
    changed = OutgoingEvent("hook_1", 1, "k1", "msg_1", "another body")
    assert post.accept([changed, *events[2:]]) == 3
    assert post.waiting("hook_1", 10) == 4
    outbox.store.close()
    assert post.accept(events) == 0


def test_notice_is_accepted_once_and_goes_past_the_outbox_on_request(outbox):
    receiver = outbox.targets["webhook"]
    notices = OutboxNotices(outbox.service, receiver, outbox.clock)
    assert [notices.send("https://a", NOTICE, direct=False) for _ in range(2)] == ["outbox"] * 2
    assert (list(outbox.statuses()), receiver.got) == ([NOTICE.id_for("https://a")], [])
    assert notices.send("https://b", NOTICE, direct=True) == "direct"
    assert [send.client_message_id for send in receiver.got] == [NOTICE.id_for("https://b")]
    receiver.result = RetryLater("refused")
    with pytest.raises(Unavailable, match="refused"):
        notices.send("https://c", NOTICE, direct=True)
    with pytest.raises(Unavailable, match="does not run"):
        OutboxNotices(None, receiver, outbox.clock).send("https://d", NOTICE, direct=False)


def test_mail_to_the_operator_is_plain_text_with_a_subject(outbox):
    receiver = outbox.targets["mail"]
    OutboxNotices(None, receiver, outbox.clock).send("mailto:a@b.org", NOTICE, direct=True)
    assert (receiver.got[0].body, receiver.got[0].meta) == (NOTICE.text, {"subject": "new: error"})
