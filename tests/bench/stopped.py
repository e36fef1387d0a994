"""A stopped workspace with a long past, and sends beside other work."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.bench import runner
from tests.bench.figures import Figure, Row, milliseconds
from tests.bench.hub import history
from tests.bench.hub.bench import Bench, Sizes
from tests.bench.hub.inserts import warm_up
from tests.bench.runner import Options, Rows
from tests.bench.served import Served
from tests.bench.target import Refused, RowFailed

T = TypeVar("T")


class StoppedBench:
    """A stopped workspace with a long past."""

    def __init__(self, workspace: Path, sizes: Sizes) -> None:
        self.workspace = workspace
        self.sizes = sizes
        self.warnings: list[str] = []
        history.make(workspace, sizes.history)


def run(
    suite: str, rows: Rows[StoppedBench], options: Options, messages: int | None = None
) -> dict[str, Any]:
    """`messages` are those of the long past, if the command line gives no number."""
    if options.workspace is not None:
        raise Refused("this suite fills a workspace of its own: run without --workspace")
    with runner.own_folder(options.parent) as (folder, conditions):
        sizes = Sizes(options.quick, options.messages or messages)
        bench = StoppedBench(folder / "workspace", sizes)
        return runner.measure(suite, rows, bench, options, conditions)


def sends_beside(
    row: Row,
    bench: StoppedBench,
    work: Callable[[threading.Event], T],
    tidy: Callable[[], None] = lambda: None,
    p99_times_max: float | None = None,
) -> list[T]:
    """Sends one by one, without and beside `work`, which is repeated until its argument is set,
    by turns. Returns what the work did."""
    seconds: dict[str, list[float]] = {"alone": [], "beside": []}
    output: list[T] = []
    with Served(bench.workspace) as served:
        hub = Bench(served.target, bench.sizes)
        warm_up(hub)
        for _ in range(bench.sizes.repeats):
            seconds["alone"] += hub.sends(row, "alone")
            with _repeated(work) as done:
                seconds["beside"] += hub.sends(row, "beside")
            output += done
            tidy()
        bench.warnings += hub.warnings
    if not output:
        raise RowFailed("no run of the work ended beside the sends")
    p50 = {variant: milliseconds(taken, 0.5) for variant, taken in seconds.items()}
    p99 = {variant: milliseconds(taken, 0.99) for variant, taken in seconds.items()}
    times = p99["beside"] / p99["alone"]
    row.figures += [
        *(Figure(f"p99 of sends, {variant}", value, "ms") for variant, value in p99.items()),
        Figure("p99 beside / p99 alone", times, "times", below=p99_times_max),
        Figure("p50 beside / p50 alone", p50["beside"] / p50["alone"], "times"),
    ]
    return output


@contextmanager
def _repeated(work: Callable[[threading.Event], T]) -> Iterator[list[T]]:
    """Work again and again while the block runs; the results."""
    done: list[T] = []
    failures: list[RowFailed] = []
    ending = threading.Event()

    def body() -> None:
        try:
            while not ending.is_set():
                done.append(work(ending))
        except RowFailed as error:
            failures.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    try:
        yield done
    finally:
        ending.set()
        thread.join()
    if failures:
        raise failures[0]
