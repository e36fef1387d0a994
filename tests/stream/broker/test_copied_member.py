"""Connections of one member from two machines or workspaces."""

import json
from contextlib import contextmanager

import pytest

from tests.stream.broker.test_member_socket import (
    LAB,
    closed,
    dialled,
    furnish,
    introduced,
    post,
    say,
)
from tests.support.broker import item
from tests.support.servedhub import serve

pytestmark = pytest.mark.slow


def negotiate_as(workspace):
    instance = {"host": "h1", "workspace": workspace, "machine": "b1"}
    params = {"version": 1, "instance": instance}
    feature = {"name": "concurrent_connection_policy", "params": params}
    return {"type": "negotiate", "optional": [feature]}


def await_frame(socket, kind):
    """The next frame of that type."""
    while (frame := json.loads(socket.recv(10)))["type"] != kind:
        pass
    return frame


@contextmanager
def linked_as(hub, name, workspace):
    with dialled(hub) as socket:
        introduced(socket, name)
        say(socket, negotiate_as(workspace))
        yield socket


def test_copy_of_a_connected_member_is_refused_until_that_one_has_ended(tmp_path):
    with serve(tmp_path) as hub:
        furnish(hub)
        hub.http.patch(LAB, {"concurrency": "prefer_oldest"})
        with linked_as(hub, "dora", "/a") as first:
            await_frame(first, "negotiated")
            with linked_as(hub, "dora", "/b") as copy:
                error = await_frame(copy, "error")
                assert error["code"] == "MEMBER_RUNS_ELSEWHERE"
                both = (error["details"]["running_on"], error["details"]["refused"])
                assert both == ("h1:/a", "h1:/b")
                assert closed(copy)[:2] == (4004, "member_already_connected")
            assert await_frame(first, "event")["refused"] == "h1:/b"
            members = hub.http.get(f"{LAB}/members").body["members"]
            (row,) = [row for row in members if row["name"] == "dora"]
            assert (row["running_on"], row["refused"]) == ("h1:/a", "h1:/b")
            post(hub, "anna", item("copy", "to the first", to="dora"))
            message = await_frame(first, "push")["message_id"]
            say(first, {"type": "client_ack", "message_id": message})
        with linked_as(hub, "dora", "/b") as moved:
            await_frame(moved, "negotiated")
