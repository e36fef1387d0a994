"""Requests over kept connections: what is repeated, and which replies are refused."""

import pytest

from appliance.kernel.http_client import HttpClient
from appliance.kernel.http_limits import HttpLimits
from appliance.kernel.unreachable import Unreachable
from tests.support.http_server import http_server

OK = (200, {}, b"ok")
LIMITS = HttpLimits(connect_seconds=2.0, reply_seconds=0.5, reply_bytes_max=100)


def client_of(server):
    return HttpClient(f"http://127.0.0.1:{server.port}", LIMITS, "the server")


def test_new_connection_that_is_closed_is_not_repeated():
    with http_server(lambda _: None) as server, pytest.raises(Unreachable):
        client_of(server).request("POST", "/", dict, b"x")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "reply", [(200, {}, b"x" * 101), (200, {"Content-Length": "10"}, b"short"), b"nonsense\r\n\r\n"]
)
def test_incomplete_and_oversized_responses_are_refused(reply):
    with http_server(lambda _: reply) as server, pytest.raises(Unreachable):
        client_of(server).request("GET", "/", dict)
