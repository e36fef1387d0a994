"""Agents post a repository's history through the SDK while two listeners follow, and counts agree.

One listener starts before the first message, another when the first agent is done. In the end both
have every event once, and the log has as many messages as were acknowledged. Exit code 1 if not.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from appliance.kernel.errors import ApplianceError, Invalid  # noqa: E402
from appliance.process import daemon, stopping  # noqa: E402
from appliance.sdk.client import Client  # noqa: E402
from appliance.sdk.discovery import find_hub  # noqa: E402
from appliance.sdk.http import HubClient  # noqa: E402

GIT_SECONDS_MAX = 120
CATCH_UP_SECONDS_MAX = 120.0
TEXT_CHARACTERS_MAX = 10_000
PAGE = 1000


def main() -> int:
    flags = parse()
    try:
        shares = read_history(flags.repo, flags.limit, flags.agents)
        with open_appliance(flags.workspace) as workspace:
            report = post_and_compare(workspace, shares)
    except ApplianceError as error:
        print(f"Error: {error.message}\nHint: {error.hint}", file=sys.stderr)
        return 1
    print(json.dumps(report, indent=1))
    return 0 if report["agree"] else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ops/demo", description=__doc__)
    parser.add_argument(
        "--workspace",
        type=Path,
        help="post into the appliance that runs there (default: a temporary one)",
    )
    parser.add_argument("--repo", type=Path, default=ROOT, help="git repository (default: this)")
    parser.add_argument("--limit", type=int, default=500, help="messages at most (500)")
    parser.add_argument("--agents", type=int, default=4, help="agents at the same time (4)")
    return parser.parse_args()


def read_history(repository: Path, limit: int, agents: int) -> list[list[tuple[str, str]]]:
    """The newest commits, oldest first: (author, text) of those of each agent."""
    command = ["git", "-C", str(repository), "log", "-z", f"-{limit}", "--reverse"]
    try:
        text = subprocess.check_output(
            [*command, "--format=%an%x1f%B"], timeout=GIT_SECONDS_MAX, text=True, errors="replace"
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Invalid(
            f"git log in {repository} failed: {error}", hint="ops/demo --repo ."
        ) from None
    commits = [tuple(record.split("\x1f", 1)) for record in text.split("\0") if record.strip()]
    return [
        [(author, words[:TEXT_CHARACTERS_MAX]) for author, words in commits[number::agents]]
        for number in range(agents)
    ]


@contextmanager
def open_appliance(workspace: Path | None) -> Iterator[Path]:
    """The workspace of a running appliance: the one that is named, or a temporary one."""
    if workspace is not None:
        yield workspace
        return
    with tempfile.TemporaryDirectory(prefix="agentlip-demo-") as folder:
        datadir, _ = daemon.init_workspace(Path(folder))
        daemon.start(datadir, daemon.ServerOptions(port=0, no_limits=True))
        try:
            yield datadir.workspace
        finally:
            stopping.stop(datadir, lambda _: None)


class TopicListener(threading.Thread):
    """Follows the event stream after an event."""

    def __init__(self, workspace: Path, after: int) -> None:
        super().__init__(daemon=True)
        self._client = Client(workspace, after_event_id=after)
        self._changed = threading.Condition()
        self._event_ids: list[int] = []

    def run(self) -> None:
        for event in self._client.events():
            with self._changed:
                self._event_ids.append(event.event_id)
                self._changed.notify()

    def wait_until(self, last: int) -> list[int]:
        """The ids of its events up to `last`. It follows no longer."""
        with self._changed:
            self._changed.wait_for(lambda: last in self._event_ids, CATCH_UP_SECONDS_MAX)
            self._client.close()
            return [number for number in self._event_ids if number <= last]


def post_and_compare(workspace: Path, shares: list[list[tuple[str, str]]]) -> dict[str, Any]:
    hub = HubClient(lambda: find_hub(workspace))
    before = newest_event(hub)
    listeners = [TopicListener(workspace, before)]
    listeners[0].start()
    with Client(workspace) as client, ThreadPoolExecutor(len(shares)) as pool:
        channel = client.create_channel(f"history-{before}").channel.id
        agents = [
            pool.submit(post_share, workspace, channel, f"agent {number}", share)
            for number, share in enumerate(shares, 1)
        ]
        next(as_completed(agents)).result()
        listeners.append(TopicListener(workspace, before))
        listeners[1].start()
        acknowledged = sum(agent.result() for agent in agents)
    last = newest_event(hub)
    log, messages = read_log(hub, channel, before, last)
    received = [listener.wait_until(last) for listener in listeners]
    return {
        "messages": sum(map(len, shares)),
        "acknowledged": acknowledged,
        "messages_in_log": messages,
        "events": len(log),
        "received": [len(ids) for ids in received],
        "agree": acknowledged == messages and received == [log, log],
    }


def post_share(workspace: Path, channel: str, title: str, share: list[tuple[str, str]]) -> int:
    """Posts to a topic of its own; returns how many messages the hub acknowledged."""
    with Client(workspace) as client:
        topic = client.create_topic(channel, title).topic.id
        sent = [
            client.send_message(topic, author or "unknown", text.strip() or "(empty)")
            for author, text in share
        ]
        return len(sent)


def newest_event(hub: HubClient) -> int:
    events = hub.get("/api/v1/events", tail=1)["events"]
    return int(events[-1]["event_id"]) if events else 0


def read_log(hub: HubClient, channel: str, after: int, last: int) -> tuple[list[int], int]:
    """The ids of the events in (after, last], and how many are messages of the channel."""
    ids: list[int] = []
    messages = 0
    while after < last:
        for event in hub.get("/api/v1/events", after=after, limit=PAGE)["events"]:
            after = event["event_id"]
            if after <= last:
                ids.append(after)
                created = event["name"] == "message.created"
                messages += created and event["scope"]["channel_id"] == channel
    return ids, messages


if __name__ == "__main__":
    sys.exit(main())
