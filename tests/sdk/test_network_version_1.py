"""Messages of protocol version 1, which an upgraded agent reads from the relay."""

import json

import pytest

from appliance.kernel.clock import DAY_MS, iso


def serve_version_1(network, *texts):
    """The relay serves version 1, and anna has sent these texts to bert there."""
    network.relay.relay.v1_until_ms = network.clock.now_ms() + 30 * DAY_MS
    for text in texts:
        body = {
            "from": "anna", "to": "bert", "type": "text", "text": text, "messageId": text,
            "nonce": text, "timestamp": iso(network.clock.now_ms()), "signature": "x",
        }  # fmt: skip
        network.agents["anna"].relay.request("POST", "/relay/send", body)


def former_inbox(network):
    return network.agents["bert"].relay.request("GET", "/relay/inbox/bert")


def test_upgraded_agent_reads_its_version_1_inbox_once(network):
    network.agent("anna", receipts=True)
    network.agent("bert")
    network.connect("anna", "bert")
    serve_version_1(network, "1", "2")
    network.agents["bert"].close()
    bert = network.open("bert", receipts=True)  # a new version of the program
    for _ in range(2):
        bert.poll()
    assert network.texts("bert") == ["1", "2"]
    message = network.handled[0][1]
    assert (message.sender, message.version, message.sender_key) == ("anna", "1.0", "")
    assert former_inbox(network) == []
    serve_version_1(network, "3")  # the sender has not moved yet
    bert.poll()
    network.wait(1)
    assert (network.texts("bert"), network.sent) == (["1", "2", "3"], [])  # without receipts


def test_version_1_message_waits_until_its_sender_is_a_contact(network):
    for name in ("anna", "bert"):
        network.agent(name)
        network.agents[name]._has_former_inbox = True
    serve_version_1(network, "hi")
    network.agents["bert"].poll()
    assert (network.texts("bert"), len(former_inbox(network))) == ([], 1)
    network.connect("anna", "bert")
    assert (network.texts("bert"), former_inbox(network)) == (["hi"], [])


def test_version_1_message_comes_again_after_a_failed_handler(network, anna):
    texts = []

    def handle(message):
        texts.append(message.payload["text"])
        if len(texts) == 2:
            raise RuntimeError

    network.agents["bert"].close()
    bert = network.open("bert", on_message=handle)
    serve_version_1(network, "1", "2")
    with pytest.raises(RuntimeError):
        bert.poll()
    assert [row["text"] for row in former_inbox(network)] == ["2"]
    bert.poll()
    assert texts == ["1", "2", "2"]


def test_relay_without_version_1_gets_one_request(network, anna):
    asked = []
    network.tamper["/relay/inbox/anna"] = lambda content: asked.append(1) or content
    anna._has_former_inbox = True
    for _ in range(3):
        anna.poll()
    assert asked == [1]


@pytest.mark.parametrize("row", [{}, 7, {"from": "anna"}, {"from": 1, "text": "hi"}])
def test_malformed_version_1_row_is_dropped(network, anna, row):
    bert = network.agents["bert"]
    bert._has_former_inbox = True
    serve_version_1(network)
    network.tamper["/relay/inbox/bert"] = lambda _: json.dumps([row]).encode()
    bert.poll()
    assert network.texts("bert") == []
