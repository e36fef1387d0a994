"""M1: how long a scrape of 1,000 series takes."""

import re
from collections.abc import Callable
from typing import Any

from tests.bench import runner
from tests.bench.client import NOW, Http, encode
from tests.bench.figures import Figure, Row, median
from tests.bench.machine import thread_seconds
from tests.bench.runner import Options
from tests.bench.target import RowFailed, Target

SERIES = 1000
SCRAPES = 200
SECONDS_MAX = 0.010
TOML = "[roles]\nrelay = true\n"


class ScrapeBench:
    """An appliance with enough series: each route that was requested has 14 of them."""

    def __init__(self, target: Target) -> None:
        self.warnings: list[str] = []
        self.pid = target.pid
        self.http = Http(target)
        self.request = encode(target, "GET", "/metrics")
        for path in self.http.call("GET", "/api/v1/openapi.json")["paths"]:
            if self.scrape() >= SERIES:
                return
            # Anything but 405 would be a change or an endless stream.
            self.http.ask(encode(target, "PATCH", re.sub(r"\{\w+\}", "x", path)))
        raise RowFailed(f"only {self.scrape()} series")

    def scrape(self) -> int:
        """The number of series."""
        status, body = self.http.ask(self.request)
        if status != 200:
            raise RowFailed(f"a scrape was answered with {status}")
        return sum(not line.startswith(b"#") for line in body.splitlines())


def m1(bench: ScrapeBench) -> Row:
    row = Row("M1", f"scrapes of {SERIES:,} series, one after the other")
    seconds, before = [], thread_seconds(bench.pid)[bench.pid]
    for _ in range(SCRAPES):
        began = NOW()
        count = bench.scrape()
        seconds.append(NOW() - began)
    used = thread_seconds(bench.pid)[bench.pid] - before
    row.counted = {"scrapes": SCRAPES, "series": count}
    row.figures = [
        Figure("a scrape, p50", 1000 * median(seconds), "ms", below=1000 * SECONDS_MAX),
        Figure("its processor time", 1000 * used / SCRAPES, "ms", below=1000 * SECONDS_MAX),
        Figure("a scrape, p99", 1000 * sorted(seconds)[-SCRAPES // 100], "ms"),
    ]
    return row


ROWS: dict[str, Callable[[ScrapeBench], Row]] = {"M1": m1}


def run(options: Options) -> dict[str, Any]:
    return runner.run("monitoring", ROWS, ScrapeBench, TOML, options)
