"""`agentlip webhook` against a served hub, as processes."""

from typing import Any

import pytest
from standardwebhooks import Webhook

from tests.support.commands import agentlip, succeed
from tests.support.hubprocess import HubProcess
from tests.support.until import until
from tests.support.webhook_receiver import webhook_receiver

pytestmark = pytest.mark.slow


def ask(hub: HubProcess, *arguments: str) -> Any:
    return succeed("webhook", *arguments, "--json", cwd=hub.workspace).json


def test_deliveries_are_listed_and_replayed(hub: HubProcess) -> None:
    with webhook_receiver() as receiver:
        made = ask(hub, "create", "--url", receiver.url, "--name", "channel.created",
                   "--channel", "seed-0", "--after", "0")  # fmt: skip
        webhook_id = made["webhook"]["id"]

        def done() -> list[Any]:
            rows = ask(hub, "deliveries", webhook_id, "--status", "done")
            return rows if isinstance(rows, list) else list(rows["sends"])

        (row,) = until(done, 20, "it is delivered")
        number = row["client_message_id"].rpartition(":")[2]
        payload = Webhook(made["secret"]).verify(receiver.got[0].body, receiver.got[0].headers)
        assert payload["event_id"] == int(number)
        answer = ask(hub, "update", webhook_id, "--after", str(int(number) - 1))
        assert answer["webhook"]["cursor"] == int(number) - 1
        until(lambda: len(done()) == 2, 20, "it is delivered again")
        assert receiver.ids[0] == receiver.ids[1]
        table = agentlip("webhook", "deliveries", webhook_id, cwd=hub.workspace).out
        assert table.splitlines()[1].split()[:3] == [number, "done", "0"]
        unknown = agentlip("webhook", "deliveries", "hook_unknown", cwd=hub.workspace)
        assert unknown.code == 1
        ask(hub, "delete", webhook_id)
