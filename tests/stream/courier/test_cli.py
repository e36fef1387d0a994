"""`agentlip courier` with a served appliance."""

import json
import subprocess
import sys

import pytest

from tests.support.commands import environment
from tests.support.courier import (
    enqueue,
    stats,
)
from tests.support.until import until

pytestmark = pytest.mark.slow


def agentlip(hub, *arguments, text=None):
    command = [sys.executable, "-m", "appliance", "--workspace", str(hub.workspace), "courier"]
    return subprocess.run(
        [*command, *arguments],
        input=text,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=False,
    )


def test_command_line_from_enqueue_to_redrive(hub):
    stream = "durable/cli"
    assert agentlip(hub, "enqueue", stream, '{"n":1}', "--type", "x").returncode == 0
    assert "enqueued 2" in agentlip(hub, "enqueue", stream, "-", text='{"n":2}\n{"n":3}\n').stdout
    done = agentlip(hub, "subscribe", stream, "--exit-after", "1")
    assert json.loads(done.stdout)["payload"] == {"n": 1}
    command = ["--exit-when-idle", "2", "--", "sh", "-c", 'test "$COURIER_TYPE" = x']
    assert agentlip(hub, "subscribe", stream, *command).returncode == 0
    until(lambda: stats(hub, stream)["dead"] == 2, 10, "both failed three times")
    listed = json.loads(agentlip(hub, "dlq", "list", stream, "--json").stdout)
    assert [row["error"] for row in listed] == ["exit code 1"] * 2
    assert "would redrive 2" in agentlip(hub, "dlq", "redrive", stream, "--dry-run").stdout
    assert "redrove 2" in agentlip(hub, "dlq", "redrive", stream).stdout
    assert agentlip(hub, "pause", stream).returncode == 0
    refused = agentlip(hub, "purge", stream)
    assert (refused.returncode, "--yes" in refused.stderr) == (1, True)
    assert "purged 2" in agentlip(hub, "purge", stream, "--yes").stdout
    assert agentlip(hub, "stats", "never/seen").returncode == 1


def test_command_gets_the_number_of_the_attempt(hub):
    stream = "durable/attempts"
    enqueue(hub, stream, "a")
    second = ["sh", "-c", 'test "$COURIER_ATTEMPT" = 2']
    followed = agentlip(hub, "subscribe", stream, "--exit-after", "2", "--", *second)
    assert "1 failed and will be delivered again" in followed.stderr
    until(lambda: stats(hub, stream)["acked"] == 1, 10, "the second attempt is acked")


def test_missing_command_is_an_error_and_counts_no_attempt(hub, stream):
    enqueue(hub, stream, "a")
    done = agentlip(hub, "subscribe", stream, "--", "/no/such/command")
    message = "Error: /no/such/command: No such file or directory"
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, message)
    until(lambda: stats(hub, stream)["ready"] == 1, 10, "it is back")
    assert hub.request("GET", f"/v1/envelope?stream={stream}&id=a")["attempts"] == 0


@pytest.mark.parametrize(
    "text", ["courier = 1", "[courier]\ntriggers = 3", "outbox = 1\ncourier = []"]
)
def test_rules_of_the_wrong_type_are_reported(hub, tmp_path, text):
    file = tmp_path / "bad.toml"
    file.write_text(text)
    done = agentlip(hub, "rules", "check", str(file))
    assert (done.returncode, "[[courier.triggers]]" in done.stderr) == (1, True)
    assert "Traceback" not in done.stderr
    deep = agentlip(hub, "enqueue", "a", "[" * 3000)
    assert (deep.returncode, "not JSON" in deep.stderr) == (1, True)
