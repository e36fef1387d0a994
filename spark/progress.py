"""What a person sees while stages run: the step, how many tasks are done, how long it took."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

LOOK_EVERY_SECONDS = 1.0


class Progress:
    """Lines on standard error. On a terminal the line of a running step is written over."""

    def __init__(self, say: Callable[[str], Any] | None = None, quiet: bool = False) -> None:
        self._out = say
        self._quiet = quiet
        self._terminal = say is None and sys.stderr.isatty()
        self.seconds: dict[str, float] = {}

    def say(self, text: str) -> None:
        if self._quiet:
            return
        if self._out is not None:
            self._out(text)
        else:
            print(f"\r\x1b[K{text}" if self._terminal else text, file=sys.stderr, flush=True)

    @contextmanager
    def step(self, spark: SparkSession, name: str) -> Iterator[None]:
        """Times what is done inside, and says each second how far its tasks are."""
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
        said = ""
        while not done.wait(LOOK_EVERY_SECONDS):
            text = f"{name}: {tasks(spark)}"
            if text == said:
                continue
            said = text
            if self._terminal:
                print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
            else:
                self.say(text)


def tasks(spark: SparkSession) -> str:
    """Of the stages that run now, from the engine's own tracker; a remote one has none here."""
    context = getattr(spark, "_sc", None)
    if context is None:
        return "running"
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    if not known:
        return "planning"
    total = sum(stage.numTasks for stage in known)
    finished = sum(stage.numCompletedTasks for stage in known)
    return f"{finished} of {total} tasks, {sum(stage.numActiveTasks for stage in known)} running"
