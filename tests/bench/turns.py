"""This tree against another commit, by turns: `python -m tests.bench compare BASE`.

Each turn starts a new appliance and measures, for each row, the core time that all of the
appliance's processes use for one operation. Core time is steady on a busy machine, where rates
are not. Exit code 1: a row costs more than 8 % more than in BASE, by the medians.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.client import NOW
from tests.bench.jobs.suite import cpu_seconds
from tests.bench.machine import ROOT, busy_seconds
from tests.support.servedhub import Client
from tests.support.until import until

TURNS = 5
LOSS_MAX = 0.08  # the medians of five turns on one commit differ by less
OTHERS_MAX = 0.3  # cores that others may use on a quiet machine
TEXT = "x" * 200
STREAMS = '[[courier.streams]]\npattern = "durable/*"\ndurable = true\n'


class Row(NamedTuple):
    """`prepare` returns what `work` repeats `count` times; `each`: operations in one call."""

    name: str
    count: int
    prepare: Callable[["Appliance"], Callable[[int], None]]
    clients: int = 1
    each: int = 1


class Tree(NamedTuple):
    """A commit's files, and a Python that imports these and the libraries of this environment."""

    name: str
    root: Path
    python: Path


class Appliance:
    """One server of one tree, in a new workspace."""

    def __init__(self, tree: Tree, workspace: Path) -> None:
        self._tree, self._workspace = tree, workspace
        self._folder = workspace / ".agentlip"
        (workspace / "agentlip.toml").write_text(STREAMS)
        module = ["-P", "-m", "appliance.server", "--workspace", str(workspace)]
        self._process = subprocess.Popen(
            [str(tree.python), *module, "--port", "0", "--no-limits"],
            cwd=tree.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def __enter__(self) -> "Appliance":
        until(self._is_ready, 60, f"the appliance of {self._tree.name} is ready")
        self.http = self.connect()
        channel = self.post("/api/v1/channels", {"name": "bench"})["channel"]["id"]
        command = {"channel_id": channel, "title": "t"}
        self.topic = self.post("/api/v1/topics", command)["topic"]["id"]
        self.channel = channel
        return self

    def __exit__(self, *failure: object) -> None:
        self._process.terminate()
        self._process.wait(30)

    def connect(self) -> Client:
        port = int((self._folder / "port").read_text())
        return Client(port, (self._folder / "token").read_text().strip())

    def post(self, path: str, body: Any, client: Client | None = None) -> Any:
        answer = (client or self.http).post(path, body)
        assert answer.status < 300, answer
        return answer.body

    def get(self, path: str) -> Any:
        answer = self.http.get(path)
        assert answer.status == 200, answer
        return answer.body

    def core_seconds(self) -> float:
        return sum(cpu_seconds(self._process.pid))

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, "the appliance has ended"
        with contextlib.suppress(OSError, ValueError):
            return bool(self.connect().get("/-/ready").status == 200)
        return False


def posts(appliance: Appliance) -> Callable[[int], None]:
    body = {"topic_id": appliance.topic, "sender": "bench", "content_raw": TEXT}
    local = threading.local()

    def work(_number: int) -> None:
        local.client = getattr(local, "client", None) or appliance.connect()
        appliance.post("/api/v1/messages", body, local.client)

    return work


def batches(appliance: Appliance) -> Callable[[int], None]:
    message = {"topic_id": appliance.topic, "sender": "bench", "content_raw": TEXT}
    body = {"messages": [message] * 100}
    return lambda _number: appliance.post("/api/v1/messages/batch", body)


def reads(path: str) -> Callable[[Appliance], Callable[[int], None]]:
    def prepare(appliance: Appliance) -> Callable[[int], None]:
        where = path.format(topic=appliance.topic, channel=appliance.channel)
        return lambda _number: appliance.get(where)

    return prepare


def pages(appliance: Appliance) -> Callable[[int], None]:
    """Pages that are together larger than the cache, so that every one is read again."""
    path = f"/api/v1/messages?topic_id={appliance.topic}&limit="
    ids = [message["id"] for message in appliance.get(f"{path}100")["messages"]]
    return lambda number: appliance.get(f"{path}50&before_id={ids[number % 100]}")


def envelopes(stream: str, each: int) -> Callable[[Appliance], Callable[[int], None]]:
    def prepare(appliance: Appliance) -> Callable[[int], None]:
        def work(number: int) -> None:
            made = [_envelope(f"{stream}-{number}-{index}") for index in range(each)]
            appliance.post("/v1/enqueue/batch", {"to": stream, "envelopes": made})
            got = appliance.post("/v1/receive", {"stream": stream, "max": each})
            ids = [row["deliver"]["id"] for row in got["deliveries"]]
            appliance.post("/v1/ack", {"receiver": got["receiver"], "ids": ids})

        return work

    return prepare


def sends(appliance: Appliance) -> Callable[[int], None]:
    item = {"to": "nobody", "message": TEXT}
    body = {"items": [item] * 100}
    return lambda _number: appliance.post("/v1/send/batch", body)


def claims(appliance: Appliance) -> Callable[[int], None]:
    def work(number: int) -> None:
        claim = {"task": f"t-{number}", "agent": "bench"}
        fence = appliance.post("/bus/v1/claims", claim)["fence"]
        appliance.post("/bus/v1/claims/release", {**claim, "fence": fence})

    return work


def bus_messages(appliance: Appliance) -> Callable[[int], None]:
    body = {"from_agent": "bench", "type": "note", "to_agent": "other", "payload": {"text": TEXT}}
    return lambda _number: appliance.post("/bus/v1/messages", body)


def _envelope(id_: str) -> dict[str, Any]:
    payload = {"text": TEXT}
    return {
        "id": id_,
        "ts": "2026-01-01T00:00:00Z",
        "type": "bench",
        "from": "b",
        "payload": payload,
    }


ROWS = (  # each about a second of core time, whose unit is 10 ms
    Row("hub post", 1200, posts),
    Row("hub post, 8 clients", 4000, posts, clients=8),
    Row("hub post, 100 in a batch", 150, batches, each=100),
    Row("hub 50 messages before another", 3000, pages),
    Row("hub newest 50 in a topic", 3000, reads("/api/v1/messages?topic_id={topic}&limit=50")),
    Row(
        "hub newest 50 in a channel", 3000, reads("/api/v1/messages?channel_id={channel}&limit=50")
    ),
    Row("hub 1,000 events", 300, reads("/api/v1/events?after=0&limit=1000")),
    Row("courier, 100 in a batch", 800, envelopes("memory/a", 100), each=100),
    Row("courier durable, 100 in a batch", 400, envelopes("durable/a", 100), each=100),
    Row("courier durable, one by one", 1000, envelopes("durable/b", 1)),
    Row("outbox send, 100 in a batch", 400, sends, each=100),
    Row("bus claim and release", 500, claims),
    Row("bus message", 1000, bus_messages),
)


def measure(tree: Tree, rows: tuple[Row, ...]) -> dict[str, float]:
    """Return microseconds of core time per operation, by row."""
    with tempfile.TemporaryDirectory() as folder, Appliance(tree, Path(folder)) as appliance:
        return {row.name: _cost(appliance, row) for row in rows}


def _cost(appliance: Appliance, row: Row) -> float:
    work = row.prepare(appliance)
    for number in range(max(1, row.count // 10)):
        work(-1 - number)
    before = appliance.core_seconds()
    share = row.count // row.clients

    def run(first: int) -> None:
        for number in range(first, first + share):
            work(number)

    threads = [threading.Thread(target=run, args=(each * share,)) for each in range(row.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = appliance.core_seconds() - before
    return 1e6 * spent / (share * row.clients * row.each)


@contextlib.contextmanager
def trees(base: str) -> Iterator[tuple[Tree, Tree]]:
    """Return the base in its own clone, and this tree."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "base"
        quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(clone)], **quiet)
        subprocess.run(["git", "checkout", "--quiet", base], cwd=clone, **quiet)
        yield (
            Tree(base, clone, _python(clone, Path(folder) / "old")),
            Tree("this tree", ROOT, _python(ROOT, Path(folder) / "new")),
        )


def _python(root: Path, environment: Path) -> Path:
    """Make an environment with the libraries of this one, where `root` comes first."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (libraries,) = {Path(path) for path in sys.path if path.endswith("site-packages")}
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "trees.pth").write_text(f"{root}\n{libraries}\n")
    python = environment / "bin" / "python"
    where = subprocess.check_output([python, "-Pc", "import appliance; print(appliance.__file__)"])
    assert Path(where.decode().strip()).is_relative_to(root), f"not this tree: {where!r}"
    return python


def report(old: list[dict[str, float]], new: list[dict[str, float]]) -> tuple[list[str], bool]:
    """Return the lines, and whether a row lost more than LOSS_MAX."""
    lines, is_slower = (
        [f"{'µs of core time per operation':36} {'base':>9} {'this':>9} ratio"],
        False,
    )
    for name in old[0]:
        before, after = ([turn[name] for turn in turns] for turns in (old, new))
        ratio = statistics.median(after) / statistics.median(before)
        lost = ratio > 1 + LOSS_MAX
        is_slower |= lost
        spread = max(max(each) / min(each) for each in (before, after))
        lines.append(
            f"{name:36} {statistics.median(before):9.1f} {statistics.median(after):9.1f}"
            f" {ratio:5.2f}{' SLOWER' if lost else ''} (spread {spread:.2f})"
        )
    return lines, is_slower


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench compare", description=__doc__)
    parser.add_argument("base", help="a commit, for instance HEAD~20")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--rows", default="", help="a part of the rows' names, for instance hub")
    parser.add_argument("--out", type=Path, help="write all turns there as JSON")
    flags = parser.parse_args(arguments)
    rows = tuple(row for row in ROWS if flags.rows in row.name)
    old: list[dict[str, float]] = []
    new: list[dict[str, float]] = []
    began, busy = NOW(), busy_seconds()
    own = sum(os.times()[:4])
    with trees(flags.base) as (base, this):
        for number in range(flags.turns):
            order = ((base, old), (this, new))
            for tree, turns in order if number % 2 == 0 else reversed(order):
                turns.append(measure(tree, rows))
            print(f"turn {number + 1} of {flags.turns}", file=sys.stderr, flush=True)
    others = (busy_seconds() - busy - (sum(os.times()[:4]) - own)) / (NOW() - began)
    lines, is_slower = report(old, new)
    if others > OTHERS_MAX:
        lines.append(f"others used {others:.1f} cores: the machine was not quiet")
    print("\n".join(lines))
    if flags.out is not None:
        flags.out.write_text(json.dumps({"base": old, "this": new}, indent=1) + "\n")
    return 1 if is_slower else 0
