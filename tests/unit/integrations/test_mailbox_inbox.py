"""Messages of the agent network as messages of the inbox."""

import pytest

from appliance.integrations.mailbox_inbox import NetworkInbox
from appliance.network.envelope import OpenedMessage
from tests.support.inbox import InboxFixture

ID = "7f9c24e8-3b12-4fef-91e0-56a2d5a1c001"
AT = "2026-02-17T12:00:00.000Z"


@pytest.fixture
def inbox(tmp_path):
    fixture = InboxFixture(tmp_path)
    yield fixture
    fixture.close()


def message(sender="bert", **payload):
    return OpenedMessage("2.1", "direct", ID, sender, AT, payload, f"key of {sender}")


def test_ids_of_two_senders_or_recipients_never_collide(inbox):
    accept = NetworkInbox(inbox.service).accept
    for recipient, sender in [("anna", "bert"), ("anna", "cleo"), ("dora", "bert")] * 2:
        accept(recipient, message(sender, text="hi"))
    assert inbox.rows() == [f"anna:bert:{ID}", f"anna:cleo:{ID}", f"dora:bert:{ID}"]
    assert len(inbox.events) == 3
    assert "network" in inbox.service.meshes


@pytest.mark.parametrize(
    ("payload", "body", "meta"),
    [
        ({"text": "hi"}, "hi", None),
        ({"text": "hi", "task": 7}, "hi", '{"task":7}'),
        ({"task": 7}, '{"task":7}', None),
        ({"text": 7}, '{"text":7}', None),
    ],
)
def test_text_is_the_body_and_the_rest_is_metadata(inbox, payload, body, meta):
    NetworkInbox(inbox.service).accept("anna", message(**payload))
    columns = "mesh, sender_name, destination_kind, destination_ref, created_at, body, meta"
    assert inbox.rows(f"SELECT {columns} FROM inbox") == [
        ("network", "bert", "dm", "anna", AT, body, meta)
    ]


def test_version_1_message_has_no_key_and_names_its_version(inbox):
    payload = {"text": "hi", "type": "text", "version": "1.0"}
    NetworkInbox(inbox.service).accept(
        "anna", OpenedMessage("1.0", "direct", "m1", "bert", AT, payload)
    )
    columns = "sender_name, sender_pubkey, body, meta"
    (row,) = inbox.rows(f"SELECT {columns} FROM inbox")
    assert row == ("bert", "", "hi", '{"type":"text","version":"1.0"}')
