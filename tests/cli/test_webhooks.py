"""`agentlip webhook` against a served hub, as processes."""

from typing import Any

import pytest
from standardwebhooks import Webhook

from tests.support.commands import agentlip
from tests.support.hubprocess import HubProcess
from tests.support.until import until
from tests.support.webhook_receiver import webhook_receiver

pytestmark = pytest.mark.slow

URL = "http://127.0.0.1:9/hook"


def ask(hub: HubProcess, *arguments: str) -> Any:
    done = agentlip("webhook", *arguments, "--json", cwd=hub.workspace)
    assert done.code == 0, done
    return done.json


def test_webhook_is_added_changed_and_removed(hub: HubProcess) -> None:
    made = ask(hub, "create", "--url", URL, "--channel", "seed-0", "--name", "channel.created",
               "--after", "0", "--description", "life", "--disable")  # fmt: skip
    webhook_id, secret = made["webhook"]["id"], made["secret"]
    details = ask(hub, "show", webhook_id)
    assert details == made["webhook"]
    assert len(details["events"]["channels"]) == 1
    assert webhook_id in [row["id"] for row in ask(hub, "list")]

    changed = ask(hub, "update", webhook_id, "--all-events", "--disable", "--new-secret")
    assert changed["secret"] != secret
    assert changed["webhook"]["enabled"] is False

    assert ask(hub, "delete", webhook_id) == {"id": webhook_id, "deleted": True}
    gone = agentlip("webhook", "show", webhook_id, cwd=hub.workspace)
    assert gone.code == 1
    assert "webhook not found" in gone.err


def test_webhook_output_is_readable_without_json(hub: HubProcess) -> None:
    secret = "whsec_" + "A" * 32
    file = hub.workspace / "secret.txt"
    file.write_text(secret + "\n")
    made = agentlip("webhook", "create", "--url", URL, "--secret-file", file, "--after", "0",
                    "--disable", cwd=hub.workspace)  # fmt: skip
    assert made.code == 0
    first, printed = made.out.splitlines()
    webhook_id = first.split()[-1]
    assert printed == secret
    assert secret not in agentlip("webhook", "list", cwd=hub.workspace).out
    assert "wants: everything" in agentlip("webhook", "show", webhook_id, cwd=hub.workspace).out
    agentlip("webhook", "delete", webhook_id, cwd=hub.workspace)


def test_refused_webhook_commands_print_a_hint(hub: HubProcess) -> None:
    done = agentlip("webhook", "create", "--url", "https://10.0.0.1/", cwd=hub.workspace)
    assert done.code == 1
    assert "private" in done.err
    assert "[webhooks]" in done.err
    for arguments in (("update", "x"), ("update", "x", "--all-events", "--name", "y")):
        assert agentlip("webhook", *arguments, cwd=hub.workspace).code == 1


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
