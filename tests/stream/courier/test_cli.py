"""`agentlip courier` with a served appliance."""

import pytest

from tests.support.commands import agentlip
from tests.support.courier import (
    enqueue,
    stats,
)
from tests.support.until import until

pytestmark = pytest.mark.slow


def courier(hub, *arguments, text=""):
    return agentlip("courier", *arguments, cwd=hub.workspace, stdin=text.encode())


def test_command_line_from_enqueue_to_redrive(hub):
    stream = "durable/cli"
    assert courier(hub, "enqueue", stream, '{"n":1}', "--type", "x").code == 0
    assert "enqueued 2" in courier(hub, "enqueue", stream, "-", text='{"n":2}\n{"n":3}\n').out
    done = courier(hub, "subscribe", stream, "--exit-after", "1")
    assert done.json["payload"] == {"n": 1}
    command = ["--exit-when-idle", "1", "--", "sh", "-c", 'test "$COURIER_TYPE" = x']
    assert courier(hub, "subscribe", stream, *command).code == 0
    until(lambda: stats(hub, stream)["dead"] == 2, 10, "both failed three times")
    listed = courier(hub, "dlq", "list", stream, "--json").json
    assert [row["error"] for row in listed] == ["exit code 1"] * 2
    assert "would redrive 2" in courier(hub, "dlq", "redrive", stream, "--dry-run").out
    assert "redrove 2" in courier(hub, "dlq", "redrive", stream).out
    assert courier(hub, "pause", stream).code == 0
    refused = courier(hub, "purge", stream)
    assert (refused.code, "--yes" in refused.err) == (1, True)
    assert "purged 2" in courier(hub, "purge", stream, "--yes").out
    assert courier(hub, "stats", "never/seen").code == 1


def test_missing_command_is_an_error_and_counts_no_attempt(hub, stream):
    enqueue(hub, stream, "a")
    done = courier(hub, "subscribe", stream, "--", "/no/such/command")
    message = "Error: /no/such/command: No such file or directory"
    assert (done.code, done.err.splitlines()[0]) == (1, message)
    until(lambda: stats(hub, stream)["ready"] == 1, 10, "it is back")
    assert hub.request("GET", f"/v1/envelope?stream={stream}&id=a")["attempts"] == 0
