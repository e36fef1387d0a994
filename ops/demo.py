"""Feeds real history through the HTTP API while two listeners follow, and counts.

One listener starts before the first message, another when half are sent. In the end both
must have every event exactly once after deduplication, and the log as many messages as
were acknowledged. Exit code 1 if anything disagrees.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "ops")]

from history import PastMessage, changelogs, commits  # noqa: E402

from appliance.kernel.clock import SystemClock  # noqa: E402
from appliance.kernel.errors import ApplianceError, Invalid  # noqa: E402
from appliance.process import daemon, stopping  # noqa: E402
from appliance.sdk.discovery import find_hub  # noqa: E402
from appliance.sdk.http import PATIENT, HubClient  # noqa: E402
from appliance.sdk.importer import Importer, ImportItem, item_key  # noqa: E402
from appliance.workspace.datadir import DataDir  # noqa: E402

SENDERS_MAX = 32
ASK_ABOVE_MESSAGES = 1000  # in a workspace of its own; in another one it always asks
CATCH_UP_SECONDS_MAX = 120.0
POLL_SECONDS = 0.05
CHANNELS = ("history-git", "history-debian")


def main() -> int:
    flags = parse()
    say = (lambda _: None) if flags.json else lambda text: print(text, flush=True)
    items = gather(flags, say)
    if not items:
        print("Error: no history found to feed; name a repository with --repo", file=sys.stderr)
        return 1
    try:
        confirm(flags, len(items))
        with a_hub(flags.workspace, say) as datadir, tempfile.TemporaryDirectory() as scratch:
            report = feed(datadir, items, flags.senders, Path(scratch), say)
    except ApplianceError as error:
        print(f"Error: {error.message}\nHint: {error.hint}", file=sys.stderr)
        return 1
    print(json.dumps(report) if flags.json else spell(report))
    return 0 if report["agree"] else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ops/demo", description=__doc__)
    parser.add_argument(
        "--workspace",
        type=Path,
        help="post into the appliance that runs there (default: a temporary one)",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask before posting")
    parser.add_argument("--repo", type=Path, default=ROOT, help="git repository (default: this)")
    parser.add_argument("--limit", type=positive, help="at most so many messages")
    parser.add_argument("--senders", type=positive, default=8, help="senders at once (8)")
    parser.add_argument("--no-changelogs", action="store_true", help="only the repository")
    parser.add_argument("--json", action="store_true", help="only the report, as JSON")
    flags = parser.parse_args()
    flags.senders = min(flags.senders, SENDERS_MAX)
    return flags


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def confirm(flags: argparse.Namespace, count: int) -> None:
    """Asks before many messages, or any into a workspace of somebody's; raises unless agreed."""
    if flags.yes or (flags.workspace is None and count <= ASK_ABOVE_MESSAGES):
        return
    where = f"the workspace {flags.workspace}" if flags.workspace else "a temporary workspace"
    if not sys.stdin.isatty():
        raise Invalid(
            f"posting {count:,} messages into {where} needs confirmation",
            hint="ops/demo --yes, or fewer with --limit",
        )
    print(f"Post {count:,} messages into {where}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Invalid("nothing was posted", hint="fewer messages: ops/demo --limit 500")


def gather(flags: argparse.Namespace, say: Any) -> list[ImportItem]:
    """What will be said, by whom, where; with a limit, half from each source."""
    by_channel: dict[str, list[PastMessage]] = {name: [] for name in CHANNELS}
    try:
        by_channel["history-git"] = commits(flags.repo)
    except (OSError, subprocess.TimeoutExpired) as error:
        say(f"no git history: {error}")
    if not flags.no_changelogs:
        by_channel["history-debian"] = changelogs()
        if not by_channel["history-debian"]:
            say("no Debian changelogs on this machine: skipped")
    if flags.limit:
        half = flags.limit // 2 if all(by_channel.values()) else flags.limit
        git = by_channel["history-git"][
            : max(half, flags.limit - len(by_channel["history-debian"]))
        ]
        by_channel["history-git"] = git
        by_channel["history-debian"] = by_channel["history-debian"][: flags.limit - len(git)]
    for name, entries in by_channel.items():
        say(f"{name}: {len(entries):,} entries")
    return [
        ImportItem(
            number, channel, each.topic, each.sender, each.content, item_key("demo", each.key)
        )
        for channel, entries in by_channel.items()
        for number, each in enumerate(entries, 1)
    ]


@contextmanager
def a_hub(workspace: Path | None, say: Any) -> Iterator[DataDir]:
    """The appliance that runs in `workspace`, or one of its own for as long as this lasts."""
    if workspace is not None:
        datadir = daemon.workspace(workspace)
        find_hub(workspace)  # an error, with the command that starts one
        say(f"posting into the appliance of {datadir.workspace}")
        yield datadir
        return
    with tempfile.TemporaryDirectory(prefix="agentlip-demo-") as folder:
        datadir, _ = daemon.init_workspace(Path(folder))
        say("starting a temporary appliance for this demo")
        daemon.start(datadir, daemon.ServerOptions(port=0, no_limits=True))
        try:
            yield datadir
        finally:
            stopping.stop(datadir, say)


class DemoListener:
    """`agentlip listen` as a child process that writes its events to a file."""

    def __init__(self, name: str, datadir: DataDir, since: int, out: Path) -> None:
        self.name = name
        self._since = since
        self._out = out
        with out.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "appliance", "listen", "--since", str(since),
                 "--workspace", str(datadir.workspace)],
                stdout=file, stdin=subprocess.DEVNULL, cwd=ROOT,
            )  # fmt: skip

    def newest(self) -> int:
        """The last event written whole; where it began if none yet."""
        with self._out.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(0, end - 1_000_000))
            lines = file.read().rpartition(b"\n")[0].splitlines()
        return int(json.loads(lines[-1])["event_id"]) if lines else self._since

    def event_ids(self) -> list[int]:
        with self._out.open("rb") as file:
            return [int(json.loads(line)["event_id"]) for line in file]

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(20)


def feed(
    datadir: DataDir, items: list[ImportItem], count: int, scratch: Path, say: Any
) -> dict[str, Any]:
    client = HubClient(lambda: find_hub(datadir.workspace), PATIENT)
    before = newest_event(client)
    listeners = [DemoListener("from the start", datadir, before, scratch / "first")]
    try:
        began = time.monotonic()
        sent, already, bad = send_all(datadir, items, count, lambda: listeners.append(
            DemoListener("from midway", datadir, before, scratch / "second")
        ))  # fmt: skip
        seconds = time.monotonic() - began
        say(f"sent; waiting until the listeners have event {newest_event(client):,}")
        last = newest_event(client)
        deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
        while (
            any(listener.newest() < last for listener in listeners) and time.monotonic() < deadline
        ):
            time.sleep(POLL_SECONDS)
        caught_up = time.monotonic() - began
    finally:
        for listener in listeners:
            listener.end()
    log, created = read_log(client, before, last)
    reports = [compare(listener, log, last) for listener in listeners]
    return {
        "messages": len(items),
        "sent": sent,
        "already_there": already,
        "bad": bad,
        "senders": count,
        "seconds": round(seconds, 3),
        "messages_per_second": round((sent + already) / max(seconds, 0.001)),
        "seconds_until_heard": round(caught_up, 3),
        "events": len(log),
        "messages_in_log": created,
        "listeners": reports,
        "agree": created == sent and not bad and all(report["complete"] for report in reports),
    }


def send_all(
    datadir: DataDir, items: list[ImportItem], count: int, midway: Any
) -> tuple[int, int, int]:
    """Shares the topics among `count` senders, so that a topic keeps its order."""
    shares: list[list[ImportItem]] = [[] for _ in range(count)]
    for item in items:
        shares[hash((item.channel, item.topic)) % count].append(item)
    importers = [new_importer(datadir) for _ in shares]
    done = threading.Event()
    with ThreadPoolExecutor(count) as pool:
        running = [
            pool.submit(importer.run, share)
            for importer, share in zip(importers, shares, strict=True)
        ]
        for process in running:
            process.add_done_callback(
                lambda _: done.set() if all(task.done() for task in running) else None
            )
        while sum(importer.summary.read for importer in importers) < len(items) / 2:
            if done.wait(0.005):
                break
        midway()
        summaries = [process.result() for process in running]
    return (
        sum(summary.sent for summary in summaries),
        sum(summary.already for summary in summaries),
        sum(summary.bad for summary in summaries),
    )


def new_importer(datadir: DataDir) -> Importer:
    client = HubClient(lambda: find_hub(datadir.workspace), PATIENT)
    return Importer(client, SystemClock(), skip_bad=True, split=True)


def newest_event(client: HubClient) -> int:
    events = client.get("/api/v1/events", tail=1)["events"]
    return int(events[-1]["event_id"]) if events else 0


def read_log(client: HubClient, after: int, until: int) -> tuple[set[int], int]:
    """Ids of the events in (after, until], and how many are messages in our channels."""
    channels = client.get("/api/v1/channels")["channels"]
    ours = {channel["id"] for channel in channels if channel["name"] in CHANNELS}
    ids: set[int] = set()
    created = 0
    while after < until:
        for event in client.get("/api/v1/events", after=after, limit=1000)["events"]:
            after = event["event_id"]
            if after > until:
                break
            ids.add(after)
            created += event["name"] == "message.created" and event["scope"]["channel_id"] in ours
    return ids, created


def compare(listener: DemoListener, log: set[int], last: int) -> dict[str, Any]:
    ids = [event_id for event_id in listener.event_ids() if event_id <= last]
    unique = set(ids)
    return {
        "name": listener.name,
        "events": len(unique),
        "repeated": len(ids) - len(unique),
        "missing": len(log - unique),
        "unknown": len(unique - log),
        "complete": unique == log,
    }


def spell(report: dict[str, Any]) -> str:
    lines = [
        f"{report['sent']:,} messages sent, {report['already_there']:,} were already there,"
        f" {report['bad']:,} rejected",
        f"{report['senders']} senders, {report['seconds']:.1f} s,"
        f" {report['messages_per_second']:,} messages/s;"
        f" all received after {report['seconds_until_heard']:.1f} s",
        f"log: {report['events']:,} events, {report['messages_in_log']:,} of them messages",
    ]
    for listener in report["listeners"]:
        lines.append(
            f"listener {listener['name']}: {listener['events']:,} events,"
            f" {listener['missing']} missing, {listener['repeated']} repeated"
        )
    lines.append("The counts agree." if report["agree"] else "THE COUNTS DO NOT AGREE.")
    return "\n".join(lines)


if __name__ == "__main__":
    if shutil.which("git") is None:
        print("(git is not installed: only changelogs)", file=sys.stderr)
    sys.exit(main())
