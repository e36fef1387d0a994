"""Requests to a courier over HTTP, with the status that they expect."""

from typing import Any

from tests.support.courier import INBOX, CourierFixture, envelope
from tests.support.http import Client


def post(client: Client, path: str, body: Any, status: int = 200) -> Any:
    result = client.simulate_post(path, json=body)
    assert result.status_code == status, result.text
    return result.json


def get(client: Client, path: str, status: int = 200, **params: Any) -> Any:
    result = client.simulate_get(path, params=params)
    assert result.status_code == status, result.text
    return result.json


def enqueue(client: Client, id_: str, to: str = INBOX, status: int = 200, **more: Any) -> Any:
    return post(client, "/v1/enqueue", {"to": to, "envelope": envelope(id_, **more)}, status)


def receive(client: Client, stream: str = INBOX, **more: Any) -> Any:
    return post(client, "/v1/receive", {"stream": stream, "max": 10, **more})


def dead_letter(courier: CourierFixture, client: Client, *ids: str, **more: Any) -> None:
    for id_ in ids:
        enqueue(client, id_, **more)
        got = receive(client)
        post(client, "/v1/nack", {"receiver": got["receiver"], "ids": [id_], "mode": "reject"})
