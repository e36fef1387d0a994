"""Tokens while no hub runs: the same verbs on the file itself, under the writer lock."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from appliance.kernel import schema
from appliance.kernel.auth import TokenBook
from appliance.kernel.batch import BatchRunner
from appliance.kernel.clock import SystemClock
from appliance.kernel.datadir import DataDir, WriterLock
from appliance.kernel.ids import IdFactory, random_id
from appliance.kernel.log import Log
from appliance.kernel.reader import Reader, open_connection
from appliance.tokens.service import Tokens
from appliance.tokens.settings import AuthSettings

T = TypeVar("T")


class File:
    """One connection that does what a Store does, for one caller."""

    def __init__(self, runner: BatchRunner, reader: Reader) -> None:
        self._runner = runner
        self._reader = reader

    def write(self, function: Callable[..., T], *args: Any) -> T:
        outcomes, _ = self._runner.run([(function, args)])
        return outcomes[0].unwrap()  # type: ignore[no-any-return]

    def read(self, function: Callable[..., T], *args: Any) -> T:
        return function(self._reader, *args)


@contextmanager
def tokens_of(datadir: DataDir) -> Iterator[Tokens]:
    """The verbs on this workspace's file. Raises HubRunning if a hub holds the lock."""
    clock = SystemClock()
    lock = WriterLock(datadir, random_id(), clock)
    lock.acquire()
    try:
        path = datadir.database("auth")
        log = Log(sys.stderr.buffer, level="warning")
        schema.migrate(path, "auth", clock=clock, backups=datadir.backups, log=log)
        with closing(open_connection(path, "FULL")) as connection:
            runner = BatchRunner(connection, clock, IdFactory(clock))
            file = File(runner, Reader(connection, clock, query_only=False))
            grace = AuthSettings().grace_seconds
            yield Tokens(file, TokenBook(), datadir, clock, grace)
    finally:
        lock.release()
