"""An inbox in threads and in asyncio, through a restart of the appliance."""

import asyncio
import threading

import pytest

from appliance.sdk.aio import AsyncClient
from appliance.sdk.client import Client
from appliance.sdk.errors import Refused
from tests.support.servedhub import serve

pytestmark = pytest.mark.slow


def test_both_clients_receive_acknowledge_and_decline(tmp_path):
    async def work(topic_id):
        async with AsyncClient(tmp_path) as client:
            await client.send_message(topic_id, "bob", "two", to=["ada"])
            async for entry in client.entries("bob"):
                await client.decline_entry(entry.id, "no time", name="bob")
                return entry.message.content_raw
        return None

    with serve(tmp_path) as hub, Client(tmp_path) as client:
        _, topic_id = hub.channel_with_topic("general")
        sent = client.send_message(topic_id, "ada", "one", to=["ada", "bob"], ack_by_seconds=60)
        assert [receipt.name for receipt in sent.receipts] == ["ada", "bob"]
        assert sent.unknown == ["ada", "bob"]
        assert asyncio.run(work(topic_id)) == "one"
        texts = []
        for entry in client.entries("ada"):
            texts.append(entry.message.content_raw)
            if len(texts) == 2:
                break
        assert texts == ["one", "two"]
        with pytest.raises(Refused):
            client.acknowledge_range(1, 99, name="ada")
        settled = client.acknowledge_range(1, 3, name="ada")
        assert len(settled.ids) == 2
        ada, bob = client.receipts(sent.message.id)
        assert (ada.state, bob.state, bob.declined_because) == (
            "acknowledged", "declined", "no time",
        )  # fmt: skip
        assert client.follow_topic("general/t", "cy").changed
        assert client.unfollow_topic("general/t", "cy").changed


def test_iteration_over_entries_goes_on_after_a_kill(tmp_path):
    with serve(tmp_path) as hub, Client(tmp_path, wait=True) as client:
        _, topic_id = hub.channel_with_topic("general")
        texts = []

        def work():
            for entry in client.entries("ada"):
                texts.append(entry.message.content_raw)
                client.acknowledge_entries(entry.id, name="ada")
                if len(texts) == 6:
                    return

        thread = threading.Thread(target=work)
        thread.start()
        for number in range(6):
            client.send_message(topic_id, "boss", str(number), to=["ada"])
            if number % 2:
                hub.kill()
                hub.start()
        thread.join(60)
        assert texts == [str(number) for number in range(6)]
