"""Imports through a real hub: everything once, whatever happens to the run."""

import json
import random
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import agentlip, command, environment
from tests.support.hubprocess import HubProcess
from tests.support.until import until

pytestmark = pytest.mark.slow


def _line(number: int, channel: str, **more: Any) -> str:
    value = {"channel": channel, "topic": f"t{number % 7}", "sender": f"s{number % 3}"}
    return json.dumps({**value, "content": f"line {number}", "ts": "2020-01-01", **more}) + "\n"


def _file(path: Path, channel: str, count: int) -> Path:
    path.write_text("".join(_line(n, channel) for n in range(count)), encoding="utf-8")
    return path


def _stored(hub: HubProcess, channel: str) -> Counter[str]:
    """Contents of a channel, counted, read from the log."""
    channels = hub.request("GET", "/api/v1/channels")["channels"]
    ids = [each["id"] for each in channels if each["name"] == channel]
    return Counter(
        event["data_json"]["message"]["content_raw"]
        for event in hub.events()
        if event["name"] == "message.created" and event["scope"]["channel_id"] in ids
    )


def test_order_of_the_file_is_kept_in_a_topic(hub: HubProcess, tmp_path: Path) -> None:
    file = _file(tmp_path / "a.jsonl", "order", 300)
    assert agentlip("import", "jsonl", file, cwd=hub.workspace).code == 0
    rows = agentlip(
        "msg", "tail", "--channel", "order", "--topic", "t3", "--limit", 1000, "--json",
        cwd=hub.workspace,
    ).json  # fmt: skip
    assert [row["content_raw"] for row in rows[::-1]] == [f"line {n}" for n in range(3, 300, 7)]


def test_import_killed_again_and_again_ends_with_each_line_once(
    hub: HubProcess, tmp_path: Path
) -> None:
    count = 6000
    file = _file(tmp_path / "a.jsonl", "killed", count)
    rng = random.Random(7)
    before = len(hub.events())
    kills = 0
    while True:
        process = subprocess.Popen(
            command("agentlip", "import", "jsonl", str(file), "--json"),
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=hub.workspace,
            env=environment(),
        )  # fmt: skip
        target = before + rng.randrange(100, 2500)
        newest = _Newest(hub)
        until(lambda: process.poll() is not None or newest() >= target, 60)  # noqa: B023
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
            before = newest()
        out, _ = process.communicate(timeout=60)
        if process.returncode == 0:
            break
    summary = json.loads(out)
    assert kills >= 1
    assert summary["sent"] + summary["already"] == count
    assert _stored(hub, "killed") == Counter(f"line {n}" for n in range(count))


class _Newest:
    def __init__(self, hub: HubProcess) -> None:
        self._hub = hub

    def __call__(self) -> int:
        events = self._hub.request("GET", "/api/v1/events?tail=1")["events"]
        return int(events[-1]["event_id"]) if events else 0


def test_invalid_line_stops_the_import_with_its_number(hub: HubProcess, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    good = [_line(n, "bad") for n in range(3)]
    file.write_text("".join([*good, "{oops\n", _line(9, "bad")]), encoding="utf-8")
    done = agentlip("import", "jsonl", file, cwd=hub.workspace)
    assert done.code == 1
    assert "item 4: not JSON" in done.err
    assert _stored(hub, "bad").total() == 3
    skipping = agentlip("import", "jsonl", file, "--skip-bad", "--json", cwd=hub.workspace)
    assert skipping.code == 0
    summary = skipping.json
    assert (summary["sent"], summary["already"], summary["bad"]) == (1, 3, 1)
    assert summary["reasons"][0]["place"] == 4


def test_entries_refused_by_the_hub_are_reported_with_their_lines(
    hub: HubProcess, tmp_path: Path
) -> None:
    file = tmp_path / "a.jsonl"
    lines = [
        _line(0, "refused"),
        _line(1, "x" * 101),
        _line(2, "refused", topic="y" * 201),
        _line(3, "refused", sender="z" * 300),
        _line(4, "refused", content="b" * 70_000),
        _line(5, "refused"),
    ]
    file.write_text("".join(lines), encoding="utf-8")
    done = agentlip("import", "jsonl", file, "--skip-bad", "--json", cwd=hub.workspace)
    assert done.code == 0, done
    assert sorted(bad["place"] for bad in done.json["reasons"]) == [2, 3, 4, 5]
    assert _stored(hub, "refused") == Counter(["line 0", "line 5"])


def test_long_content_is_split_on_request_without_loss(hub: HubProcess, tmp_path: Path) -> None:
    text = "\n".join(f"row {n} ü" for n in range(20_000))
    file = tmp_path / "a.jsonl"
    file.write_text(_line(0, "long", content=text), encoding="utf-8")
    for _ in range(2):
        done = agentlip("import", "jsonl", file, "--split", "--json", cwd=hub.workspace)
        assert done.code == 0, done
    rows = agentlip(
        "msg", "tail", "--channel", "long", "--topic", "t0", "--json", cwd=hub.workspace
    ).json
    assert len(rows) > 1
    assert "".join(row["content_raw"] for row in rows[::-1]) == text


def test_import_reads_standard_input(hub: HubProcess) -> None:
    lines = "".join(_line(n, "piped") for n in range(10)).encode()
    for sent in (10, 0):
        done = agentlip(
            "import", "jsonl", "-", "--source", "x", "--json", cwd=hub.workspace, stdin=lines
        )
        assert done.code == 0, done
        assert done.json["sent"] == sent
    assert _stored(hub, "piped").total() == 10


def test_mailbox_is_imported(hub: HubProcess, tmp_path: Path) -> None:
    file = tmp_path / "m.mbox"
    mails = [
        f"From x Mon Feb  2 10:00:{n:02d} 2026\nFrom: Ann <a@example.org>\n"
        f"Subject: {'Re: ' * (n % 2)}Plan {n // 2}\nMessage-ID: <{n}@x>\n\nbody {n}\n\n"
        for n in range(20)
    ]
    file.write_text("".join(mails), encoding="utf-8")
    for sent in (20, 0):
        done = agentlip("import", "mbox", file, "--channel", "mail", "--json", cwd=hub.workspace)
        assert done.code == 0, done
        assert done.json["sent"] == sent
    topics = agentlip("topic", "list", "--channel", "mail", "--json", cwd=hub.workspace).json
    assert {topic["title"] for topic in topics} == {f"Plan {n}" for n in range(10)}
    assert _stored(hub, "mail") == Counter(f"body {n}" for n in range(20))
