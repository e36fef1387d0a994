"""A courier with a journal on a real file: it ends as a crash would, and another one begins."""

import sys
from pathlib import Path
from typing import Any

from appliance.courier.credit import Taker
from appliance.courier.item import Item
from appliance.courier.journal import Journal
from appliance.courier.operator import Operator
from appliance.courier.ring import Ring
from appliance.courier.service import Courier
from appliance.courier.wire import Receive
from appliance.kernel.datadir import DataDir
from appliance.kernel.log import Log
from appliance.kernel.schema import create_workspace
from appliance.kernel.store import Store
from appliance.kernel.writer import StoreSettings
from tests.support.clock import FakeClock
from tests.support.courier import ANYBODY, INBOX, raw, settings_of


class Life:
    """All streams are durable. `again` ends it without a goodbye and starts the next one."""

    def __init__(self, path: Path, **values: Any) -> None:
        self.values = {"streams": [{"pattern": "*", "durable": True}], **values}
        self.datadir = DataDir(path)
        self.clock = FakeClock()
        self.log = Log(sys.stderr.buffer, level="error")
        if not self.datadir.database("courier").exists():
            create_workspace(self.datadir, clock=self.clock, log=self.log)
        self.start()

    def start(self) -> None:
        path = self.datadir.database("courier")
        self.store = Store("courier", path, StoreSettings(), self.clock, self.log)
        settings = settings_of(**self.values)
        self.courier = Courier(settings, self.clock, self.log, "boot", Journal(self.store))
        self.operator = Operator(self.courier)

    def again(self, *, flushed: bool = True) -> None:
        if flushed:
            self.courier.inserts.flush()
        assert self.store.close(10)
        self.start()

    def put(self, *ids: str, stream: str = INBOX, **more: Any) -> Any:
        return self.courier.enqueue_batch(ANYBODY, stream, [raw(id_, **more) for id_ in ids])

    def take(self, most: int = 10, stream: str = INBOX) -> tuple[Taker, list[Item]]:
        return self.courier.receive(ANYBODY, Receive(stream, most))

    def ids(self, most: int = 10) -> list[str]:
        return [item.id for item in self.take(most)[1]]

    def nack(self, mode: str, error: str = "", most: int = 1) -> None:
        taker, items = self.take(most)
        self.courier.nack(taker, [item.id for item in items], mode, error=error)

    def ring(self, stream: str = INBOX) -> Ring:
        return self.courier.queue.rings[stream]

    def rows(self, table: str) -> list[Any]:
        return self.store.read(lambda reader: reader.execute(f"SELECT * FROM {table}").fetchall())
