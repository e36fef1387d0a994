"""A verb gets the caller, the query and the body, and its result is the reply."""

from typing import Any

import msgspec
import pytest

from appliance.kernel.auth import Principal
from appliance.kernel.idempotency import Reply
from appliance.kernel.route import Operation, Route
from appliance.web.responders import Responders, reply_to_caller, reply_to_change, reply_with
from tests.support.http import TOKEN, Client, app_of


class Limit(msgspec.Struct):
    limit: int


def list_given(*given: Any) -> list[Any]:
    return [{"caller": each.id} if isinstance(each, Principal) else each for each in given]


def change(name: str, body: Limit, who: Principal, key: str | None) -> Reply:
    return Reply(201, msgspec.json.encode(list_given(name, body, who, key)), replayed=True)


@pytest.fixture(scope="module")
def client() -> Client:
    routes = [
        Route("/rows/{first}/{second}", Responders(
            get=reply_with(list_given), post=reply_to_caller(list_given, 202),
            delete=reply_with(list_given),
        ), {
            "GET": Operation("hub:read", "list", query=Limit),
            "POST": Operation("hub:post", "add", body=Limit, status=202),
            "DELETE": Operation("hub:post", "remove"),
        }),
        Route("/changes/{name}", Responders(put=reply_to_change(change)), {
            "PUT": Operation("hub:post", "change", body=Limit, keyed=True),
        }),
    ]  # fmt: skip
    return Client(app_of(routes), TOKEN)


def test_verb_gets_the_fields_of_the_path_then_the_query_or_the_body(client: Client) -> None:
    assert client.simulate_get("/rows/2/1?limit=3").json == ["2", "1", {"limit": 3}]
    assert client.simulate_delete("/rows/x/y").json == ["x", "y"]


def test_caller_is_the_last_argument(client: Client) -> None:
    added = client.simulate_post("/rows/x/y", json={"limit": 1})
    caller = client.simulate_put("/changes/x", json={"limit": 1}).json[2]
    assert added.status_code == 202
    assert added.json == ["x", "y", {"limit": 1}, caller]


def test_reply_to_a_change_is_the_stored_one(client: Client) -> None:
    headers = {"Idempotency-Key": "once"}
    changed = client.simulate_put("/changes/x", json={"limit": 1}, headers=headers)
    assert (changed.status_code, changed.json[3]) == (201, "once")
    assert changed.headers["Idempotency-Replayed"] == "true"
