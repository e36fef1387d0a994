"""Posts a repository's history through the SDK while two listeners follow, and compares the
counts.

One listener starts before the first message, another when the first agent is done. In the end both
have every event in the channel once, and the log has as many messages as were acknowledged. Exit
code 1 if not.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from appliance.kernel.errors import ApplianceError, Invalid  # noqa: E402
from appliance.kernel.ids import random_id  # noqa: E402
from appliance.process import daemon, stopping  # noqa: E402
from appliance.sdk.client import Client  # noqa: E402
from appliance.sdk.discovery import find_hub  # noqa: E402
from appliance.sdk.http import HubClient  # noqa: E402
from appliance.sdk.models import Envelope  # noqa: E402

GIT_SECONDS_MAX = 120
CATCH_UP_SECONDS_MAX = 120.0
TEXT_CHARACTERS_MAX = 10_000
END = "end of the history"  # the topic that is created last


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
    parser.add_argument("--workspace", type=Path, help="where an appliance runs (a temporary one)")
    parser.add_argument("--repo", type=Path, default=ROOT, help="git repository (default: this)")
    parser.add_argument("--limit", type=int, default=500, help="messages at most (500)")
    parser.add_argument("--agents", type=int, default=4, help="agents at the same time (4)")
    return parser.parse_args()


def read_history(repository: Path, limit: int, agents: int) -> list[list[list[str]]]:
    """Return each agent's share of the newest commits, oldest first, as [author, text]."""
    command = ["git", "-C", str(repository), "log", "-z", f"-{limit}", "--reverse"]
    try:
        text = subprocess.check_output(
            [*command, "--format=%an%x1f%B"], timeout=GIT_SECONDS_MAX, text=True, errors="replace"
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Invalid(
            f"git log in {repository} failed: {error}", hint="ops/demo --repo ."
        ) from None
    commits = [record.split("\x1f", 1) for record in text.split("\0") if record.strip()]
    return [commits[number::agents] for number in range(agents)]


@contextmanager
def open_appliance(workspace: Path | None) -> Iterator[Path]:
    """Yield a running appliance's workspace: the given one, or a temporary one."""
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


def post_and_compare(workspace: Path, shares: list[list[list[str]]]) -> dict[str, Any]:
    with Client(workspace) as client:
        channel = client.create_channel(f"history-{random_id()[:8]}").channel.id
        early, late = (Client(workspace, subscriptions={"channels": [channel]}) for _ in range(2))
        with ThreadPoolExecutor(len(shares) + 2) as pool, early, late:
            followed = [pool.submit(list_until_end, early.events())]
            agents = [
                pool.submit(post_share, workspace, channel, f"agent {number}", share)
                for number, share in enumerate(shares, 1)
            ]
            next(as_completed(agents)).result()
            followed.append(pool.submit(list_until_end, late.events()))
            acknowledged = sum(agent.result() for agent in agents)
            log = read_log(workspace, channel)
            client.create_topic(channel, END)
            wait(followed, CATCH_UP_SECONDS_MAX)
    last = max(log)
    received = [[event for event in future.result() if event <= last] for future in followed]
    messages = list(log.values()).count("message.created")
    return {
        "messages": sum(map(len, shares)),
        "acknowledged": acknowledged,
        "messages_in_log": messages,
        "events": len(log),
        "received": [len(ids) for ids in received],
        "agree": acknowledged == messages and received == [list(log)] * 2,
    }


def list_until_end(events: Iterable[Envelope]) -> list[int]:
    """Return the event ids up to the topic END, or until the client is closed."""
    ids = []
    for event in events:
        ids.append(event.event_id)
        if event.name == "topic.created" and event.data["topic"]["title"] == END:
            break
    return ids


def post_share(workspace: Path, channel: str, title: str, share: list[list[str]]) -> int:
    """Post to a topic and return how many messages the hub acknowledged."""
    with Client(workspace) as client:
        topic = client.create_topic(channel, title).topic.id
        sent = [
            client.send_message(
                topic, author or "unknown", text.strip()[:TEXT_CHARACTERS_MAX] or "(empty)"
            )
            for author, text in share
        ]
        return len(sent)


def read_log(workspace: Path, channel: str) -> dict[int, str]:
    """Return the channel's events so far: name by id."""
    hub = HubClient(lambda: find_hub(workspace))
    rows, _ = hub.page("/api/v1/events", "events", key="event_id", channel_id=channel)
    return {event["event_id"]: event["name"] for event in rows}


if __name__ == "__main__":
    sys.exit(main())
