"""`agentlip courier subscribe` with a command that can't be started."""

from tests.support.commands import agentlip
from tests.support.courier import (
    enqueue,
    stats,
)
from tests.support.until import until


def test_missing_command_is_an_error_and_counts_no_attempt(hub, stream):
    enqueue(hub, stream, "a")
    words = ("courier", "subscribe", stream, "--", "/no/such/command")
    done = agentlip(*words, cwd=hub.workspace)
    message = "Error: /no/such/command: No such file or directory"
    assert (done.code, done.err.splitlines()[0]) == (1, message)
    until(lambda: stats(hub, stream)["ready"] == 1, 10, "it is back")
    assert hub.request("GET", f"/v1/envelope?stream={stream}&id=a")["attempts"] == 0
