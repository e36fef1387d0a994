"""Opens one store in a stopped workspace, under the writer lock, for commands that also work
then."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from appliance.kernel.batch import BatchRunner
from appliance.kernel.clock import Clock
from appliance.kernel.ids import IdFactory, random_id
from appliance.kernel.log import Log
from appliance.kernel.reader import Reader, open_connection
from appliance.workspace import schema
from appliance.workspace.datadir import DataDir, WriterLock
from appliance.workspace.readonly import refuse_older
from appliance.workspace.schema_reader import read_state

T = TypeVar("T")


class StoppedStore:
    """A Store with one connection, for one caller."""

    def __init__(self, runner: BatchRunner, reader: Reader) -> None:
        self._runner = runner
        self._reader = reader

    def write(self, function: Callable[..., T], *args: Any) -> T:
        outcomes, _ = self._runner.run([(function, args)])
        result: T = outcomes[0].unwrap()
        return result

    def read(self, function: Callable[..., T], *args: Any) -> T:
        return function(self._reader, *args)


@contextmanager
def stopped_store(datadir: DataDir, store: str, clock: Clock) -> Iterator[StoppedStore]:
    """Yield the store on its file. Raises HubRunning if a hub is running, and SchemaTooOld for
    an older file: one store alone is not migrated, so that the backup before a migration has all
    stores as they were."""
    with WriterLock(datadir, random_id(), clock):
        path = datadir.database(store)
        log = Log(sys.stderr.buffer, level="warning")
        if path.exists():
            seen = read_state(path, store, running=False)
            if seen.schema:
                refuse_older(seen)
        schema.migrate(path, store, clock=clock, log=log)
        with closing(open_connection(path, "FULL")) as connection:
            runner = BatchRunner(connection, clock, IdFactory(clock))
            yield StoppedStore(runner, Reader(connection, clock, query_only=False))
