"""Questions to people, asked in threads and in asyncio, and answered while the caller waits."""

import asyncio
import threading

import pytest

from appliance.sdk.aio import AsyncClient
from appliance.sdk.client import Client
from appliance.sdk.errors import KeyReused, NotFound
from tests.support.servedhub import serve

pytestmark = pytest.mark.slow


def answer(hub, ask_id, text):
    assert hub.http.post(f"/api/v1/asks/{ask_id}/answer", {"answer": text}).status == 200


def test_ask_is_answered_while_both_clients_wait(tmp_path):
    async def wait(ask_id):
        async with AsyncClient(tmp_path) as client:
            same = await client.ask("Deploy?", "ci", choices=["yes", "no"], key="build-7")
            assert same.id == ask_id
            return await client.wait_for_answer(ask_id, seconds=60)

    with serve(tmp_path) as hub, Client(tmp_path) as client:
        ask = client.ask("Deploy?", "ci", choices=["yes", "no"], key="build-7")
        assert client.get_message(ask.message_id).sender == "ci"
        results = []
        threads = [
            threading.Thread(target=lambda: results.append(client.wait_for_answer(ask.id))),
            threading.Thread(target=lambda: results.append(asyncio.run(wait(ask.id)))),
        ]
        for thread in threads:
            thread.start()
        answer(hub, ask.id, "yes")
        for thread in threads:
            thread.join(60)
        assert [(each.state, each.answer) for each in results] == [("answered", "yes")] * 2
        assert client.ask("Deploy?", "ci", choices=["yes", "no"], key="build-7").answer == "yes"
        with pytest.raises(KeyReused):
            client.ask("Another?", "ci", key="build-7")
        with pytest.raises(NotFound):
            client.wait_for_answer("ask_none")
