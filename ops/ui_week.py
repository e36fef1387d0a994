"""A real week in a team with agents, for the documentation's pictures of the web UI."""

import json
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.operated_workspace import back_up, fill_bus, fill_queues, fill_sends
from tests.support.servedhub import ServedHub
from tests.support.until import until

HOUR_MS = 3_600_000
WEEK_HOURS = 7 * 24
SAMPLES = 240  # in one hour
INTERVAL_HOURS = 1 / SAMPLES
GROWING = ("hub", "outbox", "courier")
SHIFT = """import time
from pathlib import Path
read = time.time_ns
time.time_ns = lambda: read() + int(Path({file!r}).read_text()) * 1_000_000
"""
FILE = Path(__file__).with_suffix(".toml")


class Post(NamedTuple):
    """A message."""

    hours_ago: float
    channel: str
    topic: str
    sender: str
    text: str


RELEASE = "release 2.4"
WEEK = [Post(*row) for row in tomllib.loads(FILE.read_text("utf-8"))["posts"]]
SCRIPT = "test -e fixed && exit 0; echo 'warehouse: the disk is full' >&2; exit 4"
NIGHTLY = {
    "command": ["sh", "-c", SCRIPT], "cron": "15 3 * * *", "description": "compacts the tables",
}  # fmt: skip
QUESTIONS = (
    {"text": "In which region should the index live?", "sender": "planner"},
    {
        "text": "Publish release 2.4? Both images are verified: https://ci.example.com/run/815",
        "sender": "builder",
        "choices": ["publish", "wait until Monday"],
        "default": "wait until Monday",
        "deadline_seconds": 5400,
        "blocks": ["publish-2.4"],
    },
)


class Week:
    """Lives through the week with the appliance's clock in `clock_file`."""

    def __init__(self, hub: ServedHub, clock_file: Path) -> None:
        self._hub, self._clock_file = hub, clock_file
        self._channels: dict[str, str] = {}
        self.topics: dict[str, str] = {}

    def post(self, post: Post) -> dict[str, Any]:
        set_clock(self._clock_file, post.hours_ago)
        if post.channel not in self._channels:
            self._channels[post.channel] = self._hub.channel(post.channel)
        if post.topic not in self.topics:
            channel_id = self._channels[post.channel]
            self.topics[post.topic] = self._hub.topic(channel_id, post.topic)
        command = {
            "topic_id": self.topics[post.topic], "sender": post.sender, "content_raw": post.text,
        }  # fmt: skip
        message: dict[str, Any] = self._hub.made(self._hub.http.post("/api/v1/messages", command))
        return message["message"]

    def channel(self, name: str) -> str:
        return self._channels[name]

    def live(self) -> None:
        """Post the week's messages, with a job's run on each day, which fails on the last one."""
        hub = self._hub
        hub.http("PUT", "/api/v1/jobs/nightly", NIGHTLY)
        fixed = hub.workspace / "fixed"
        fixed.touch()
        for day, posts in self._days():
            set_clock(self._clock_file, day * 24 + 3)
            if day == 0:
                fixed.unlink()
            self._run_job()
            for post in posts:
                message = self.post(post)
        edit = {"op": "edit", "content_raw": "Done. Everything is verified, signed and published."}
        hub.http.patch(f"/api/v1/messages/{message['id']}", edit)
        fill_sends(hub)
        for question in QUESTIONS:
            hub.made(hub.http.post("/api/v1/asks", question))

    def end(self) -> None:
        """Live through the last hour, and leave dead letters, workers and a backup."""
        hub = self._hub
        for step in range(SAMPLES):
            set_clock(self._clock_file, (SAMPLES - step) * INTERVAL_HOURS)
            if step == SAMPLES // 2:
                fill_queues(hub)
            for _ in range(step % 90 // 30):
                hub.http.get("/health")
            until(lambda number=step: len(self._sampled()) > number, 20, "a sample")
        set_clock(self._clock_file, 0)
        fill_bus(hub)
        back_up(hub)

    def _sampled(self) -> list[int]:
        at_ms: list[int] = self._hub.http.get("/api/v1/rates").body["at_ms"]
        return at_ms

    def _days(self) -> Iterator[tuple[int, list[Post]]]:
        for day in range(6, -1, -1):
            yield day, [post for post in WEEK if int(post.hours_ago // 24) == day]

    def _run_job(self) -> None:
        hub = self._hub
        path = "/api/v1/jobs/nightly/runs"
        answer = until(  # a moved clock may have started a run, too
            lambda: (got := hub.http.post(path, {})).status == 201 and got, 60, "a run is accepted"
        )
        run = answer.body["run"]["id"]
        ended = f"/api/v1/jobs/runs/{run}"
        until(
            lambda: hub.http.get(ended).body["run"]["state"] in ("succeeded", "failed"), 60, "a run"
        )


def shift_clock(folder: Path) -> Path:
    """Make a module that shifts the wall clock in each process with the folder in its path;
    return the file with the milliseconds."""
    file = folder / "clock"
    (folder / "sitecustomize.py").write_text(SHIFT.format(file=str(file)))
    return file


def set_clock(file: Path, hours_ago: float) -> None:
    """Set the clock that the appliance reads from the file, at any moment."""
    new = file.with_suffix(".new")
    new.write_text(str(-int(hours_ago * HOUR_MS)))
    new.replace(file)


def write_growth(hub: ServedHub, file: Path) -> None:
    """Write two weeks' growth up to the present sizes, which the forecast draws."""
    forecast, now_ms = hub.http.get("/api/v1/forecast").body, int(time.time() * 1000)
    disk = forecast["disks"][0]
    sizes = {row["store"]: row["bytes"] for row in forecast["stores"] if row["store"] in GROWING}
    sizes[f"disk:{disk['of'][0]}"] = disk["size_bytes"] - disk["free_bytes"]
    samples = [
        {"at_ms": now_ms - hours * HOUR_MS,
         "values": {name: int(size * (1 - hours / 700)) for name, size in sizes.items()}}
        for hours in range(335, 0, -1)
    ]  # fmt: skip
    file.write_text(json.dumps(samples))
