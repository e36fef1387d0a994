"""Received messages: handed over once for each sender and id."""

import msgspec
import pytest

from appliance.network.envelope import OpenedMessage
from appliance.sdk.network.incoming import LEASE_MS, IncomingMessages, MessageBeingHandled

ID = "7f9c24e8-3b12-4fef-91e0-56a2d5a1c001"
MESSAGE = OpenedMessage("2.1", "direct", ID, "bert", "2026-02-17T12:00:00.000Z", {"text": "hi"})


@pytest.fixture
def messages(state):
    return IncomingMessages(state)


def test_message_is_claimed_once(messages):
    assert messages.claim(MESSAGE, 0)
    messages.finish(MESSAGE, 0, keep=True)
    assert not messages.claim(MESSAGE, 0)
    assert messages.claim(msgspec.structs.replace(MESSAGE, sender="cleo"), 0)
    (stored,) = messages.messages(0, 10)
    assert (stored.sender, stored.message_id, stored.payload) == ("bert", ID, {"text": "hi"})
    assert messages.messages(stored.number, 10) == []


def test_message_whose_handler_failed_is_claimed_again(messages):
    assert messages.claim(MESSAGE, 0)
    messages.release(MESSAGE)
    assert messages.claim(MESSAGE, 1)


def test_message_of_a_process_that_ended_is_claimed_after_the_lease(messages):
    assert messages.claim(MESSAGE, 0)
    with pytest.raises(MessageBeingHandled):
        messages.claim(MESSAGE, LEASE_MS - 1)
    assert messages.claim(MESSAGE, LEASE_MS)
