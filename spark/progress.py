"""Prints progress: the step, the number of finished tasks, the time it took."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spark.errors import StorageUnreachable
from spark.locations import ObjectPath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS = 1.0


class ProgressReporter:
    """Prints lines to standard error. On a terminal, a running step updates its line."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self.seconds: dict[str, float] = {}
        self.storage: ObjectPath | None = None  # the output, if it is not a directory

    def say(self, text: str) -> None:
        if not self._quiet:
            print(f"\r\x1b[K{text}" if self._terminal else text, file=sys.stderr, flush=True)

    @contextmanager
    def step(self, spark: SparkSession, name: str) -> Iterator[None]:
        """Measure the block's time and print its tasks' progress every second."""
        began, done = time.monotonic(), threading.Event()
        watcher = threading.Thread(target=self._watch, args=(spark, name, done), daemon=True)
        if not self._quiet:
            watcher.start()
        try:
            yield
        finally:
            done.set()
            if watcher.ident is not None:
                watcher.join()
            took = time.monotonic() - began
            self.seconds[name] = round(self.seconds.get(name, 0.0) + took, 3)
        self.say(f"{name}: {took:.1f} s")

    def _watch(self, spark: SparkSession, name: str, done: threading.Event) -> None:
        previous = ""
        while not done.wait(POLL_SECONDS):
            text = f"{name}: {self._problem() or tasks(spark)}"
            if text == previous:
                continue
            previous = text
            if self._terminal:
                print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
            else:
                self.say(text)

    def _problem(self) -> str:
        """Return what the storage answers if it refuses. The engine retries silently."""
        try:
            if self.storage is not None:
                self.storage.is_dir()
        except StorageUnreachable as error:
            return f"{error.message}; trying again"
        return ""


def tasks(spark: SparkSession) -> str:
    """Return the progress of running stages."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    running = [stage for stage in stages if stage is not None]
    if not running:
        return "planning"
    total = sum(stage.numTasks for stage in running)
    finished = sum(stage.numCompletedTasks for stage in running)
    return f"{finished} of {total} tasks, {sum(stage.numActiveTasks for stage in running)} running"
