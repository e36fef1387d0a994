"""A created token can use only the streams of its scopes."""

import json
import subprocess
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.support.commands import environment
from tests.support.courier import (
    enqueue,
    envelope,
    receive_frame,
    send,
    subscribed,
)

pytestmark = pytest.mark.slow


def command_line(hub, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "appliance", *arguments, "--workspace", str(hub.workspace)],
        capture_output=True, text=True, env=environment(), timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_created_token_allows_only_its_streams(hub):
    long = "agents/" + "x" * 243 + "/inbox"  # the longest name of a stream
    scopes = [f"streams:{long}:subscribe", "streams:agents/Jo/*:enqueue", "views:latest*:read"]
    flags = [part for scope in scopes for part in ("--scope", scope)]
    made = command_line(hub, "token", "create", "--name", "jo", *flags, "--json")
    assert made["token"]["scopes"] == sorted(scopes)
    token = made["secret"]

    def status(method, path, body=None):
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(Request(hub.url + path, data, headers, method=method)) as answer:
                return answer.status
        except HTTPError as error:
            return error.code

    def sent(to):
        return status("POST", "/v1/enqueue", {"to": to, "envelope": envelope("e")})

    assert [sent("agents/Jo/inbox"), sent("agents/Bo/inbox"), sent(long)] == [200, 403, 403]
    assert status("POST", "/v1/receive", {"stream": long}) == 200
    assert status("POST", "/v1/receive", {"stream": "agents/Jo/inbox"}) == 403
    assert status("GET", "/v1/snapshot?view=latestPerAgent") == 200
    assert status("POST", "/api/v1/channels", {"name": "x"}) == 403
    with subscribed(hub, long, token=token) as consumer:
        send(consumer, credit=1)
        enqueue(hub, long, "for-jo")
        assert receive_frame(consumer)["deliver"]["id"] == "for-jo"
    with subscribed(hub, "agents/Jo/inbox", token=token) as consumer:
        assert receive_frame(consumer)["error"]["code"] == 403
    command_line(hub, "token", "revoke", made["token"]["id"], "--json")
    assert sent("agents/Jo/inbox") == 401
