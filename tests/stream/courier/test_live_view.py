"""Live views on a served appliance, on a socket."""

import pytest

from tests.support.courier import (
    enqueue,
    opened,
    receive_frame,
    send,
)


def test_live_view_on_a_socket_is_limited_by_credit(hub):
    with opened(hub, "/v1/live?view=latestPerAgent&credit=1&filter=agents/L*") as viewer:
        hello = receive_frame(viewer)
        assert hello["connected"] is True
        enqueue(hub, "agents/Lu/inbox", "a")
        assert receive_frame(viewer)["op"] == "add"
        enqueue(hub, "agents/Lu/inbox", "b")
        enqueue(hub, "agents/Xi/inbox", "b")
        enqueue(hub, "agents/Lu/inbox", "c")
        with pytest.raises(TimeoutError):
            receive_frame(viewer, 0.3)
        send(viewer, credit=5)
        change = receive_frame(viewer)
        assert (change["addr"], change["env"]["id"], change["op"]) == (
            "agents/Lu/inbox",
            "c",
            "update",
        )
        assert change["watermark"] > hello["watermark"]
        send(viewer, credit=-1)
        assert receive_frame(viewer)["error"]["code"] == 400
