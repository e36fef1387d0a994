"""A courier with a journal in a real file that can be restarted as after a crash."""

import sys
from pathlib import Path
from typing import Any

from appliance.courier.admin import CourierAdmin
from appliance.courier.consumer import Consumer
from appliance.courier.item import StreamItem
from appliance.courier.journal import Journal
from appliance.courier.service import Courier
from appliance.courier.stream import Stream
from appliance.courier.wire import ReceiveRequest
from appliance.kernel.log import Log
from appliance.kernel.steady_clock import SteadyClock
from appliance.kernel.store import Store
from appliance.kernel.writer import StoreSettings
from appliance.workspace.datadir import DataDir
from appliance.workspace.schema import create_workspace
from tests.support.clock import FakeClock
from tests.support.courier import ANYBODY, INBOX, raw, settings_of


class DurableCourierFixture:
    """All streams are durable. `restart` drops the courier without stopping it."""

    def __init__(self, path: Path, **values: Any) -> None:
        self.values = {"streams": [{"pattern": "*", "durable": True}], **values}
        self.datadir = DataDir(path)
        self.clock = FakeClock()
        self.log = Log(sys.stderr.buffer, level="error")
        if not self.datadir.database("courier").exists():
            stores = ("auth", "courier")
            create_workspace(self.datadir, clock=self.clock, log=self.log, stores=stores)
        self.start()

    def start(self) -> None:
        path = self.datadir.database("courier")
        self.store = Store("courier", path, StoreSettings(), self.clock, self.log)
        settings = settings_of(**self.values)
        steady = SteadyClock(self.store, self.clock, self.log)
        journal = Journal(self.store, steady)
        self.service = Courier(settings, self.clock, self.log, "boot", journal)
        self.admin = CourierAdmin(self.service)

    def restart(self, *, flushed: bool = True) -> None:
        if flushed:
            self.service.pipeline.flush()
        assert self.store.close(10)
        self.start()

    def tick(self) -> None:
        self.service.queue.tick(self.service.now(), 100)

    def put(self, *ids: str, stream: str = INBOX, **more: Any) -> Any:
        return self.service.enqueue_batch(ANYBODY, stream, [raw(id_, **more) for id_ in ids])

    def take(self, limit: int = 10, stream: str = INBOX) -> tuple[Consumer, list[StreamItem]]:
        return self.service.receive(ANYBODY, ReceiveRequest(stream, limit))

    def ids(self, limit: int = 10) -> list[str]:
        return [item.id for item in self.take(limit)[1]]

    def nack(self, mode: str, error: str = "", limit: int = 1) -> None:
        consumer, items = self.take(limit)
        self.service.nack(consumer, [item.id for item in items], mode, error=error)

    def stream(self, name: str = INBOX) -> Stream:
        return self.service.queue.streams[name]

    def rows(self, table: str) -> list[Any]:
        return self.store.read(lambda reader: reader.execute(f"SELECT * FROM {table}").fetchall())
