"""An outbox on a real file with a real writer; a broker without a network; a clock that is set."""

import io
import sqlite3
from contextlib import closing
from typing import Any

import msgspec

from appliance.kernel.batch import BatchRunner
from appliance.kernel.log import Log
from appliance.kernel.store import Store
from appliance.kernel.writer import StoreSettings
from appliance.outbox import wire, writes
from appliance.outbox.loops import Sweep, Watch
from appliance.outbox.operator import Operator
from appliance.outbox.sender import Hands, Sender
from appliance.outbox.service import Outbox
from appliance.outbox.settings import OutboxSettings
from tests.support.clock import FakeClock
from tests.support.ledger import Ledger, ScriptedTarget


class Faults(BatchRunner):
    """Commits that fail before or after they happened, when the test says so."""

    before = None
    after = None

    def commit(self):
        if Faults.before is not None:
            raise Faults.before
        super().commit()
        if Faults.after is not None:
            raise Faults.after


class House:
    """An outbox and what it stands on; `reopen` is a restart."""

    def __init__(self, path, clock=None, target=None, runner=Faults, **settings):
        """`target` in place of one that writes into `ledger`."""
        self.path = path
        self.clock = clock or FakeClock()
        self.ledger = Ledger()
        self.target = target or ScriptedTarget(self.ledger)
        self.targets = {"broker": self.target}
        self.runner = runner
        self.lines = io.BytesIO()
        self.settings = msgspec.structs.replace(OutboxSettings(), **settings)
        self.told = []
        self.open()

    def open(self):
        log = Log(self.lines)
        self.store = Store(
            "outbox",
            self.path,
            msgspec.structs.replace(StoreSettings(), free_bytes_min=0, synchronous="OFF"),
            self.clock,
            log,
            runner=self.runner,
        )
        self.outbox = Outbox(
            self.store, self.settings, self.targets, self.clock, log,
            lambda name, facts: self.told.append((name, facts)),
            read_settings=lambda: msgspec.structs.replace(self.outbox.settings, **self.changed),
        )  # fmt: skip
        self.changed: dict[str, Any] = {}  # of the settings, for who reads them again
        self.operator = Operator(self.outbox)
        self.sender = Sender(self.outbox, Hands(), self.clock, log, lambda: 0.5)
        self.watch = Watch(self.outbox, self.sender.open_routes)
        self.sweep = Sweep(self.outbox)
        self.outbox.jumps.resume()
        self.store.write(writes.reset_inflight, self.settings.backoff_first_ms, "restarted")

    def reopen(self):
        self.store.close()
        self.open()

    def send(self, message="hello", key=None, to="#alerts", **more):
        """Status and body as a client has them; refusals are raised."""
        status, body = self.outbox.send(wire.Send(to=to, message=message, **more), key)
        return status, msgspec.to_builtins(body)

    def round(self):
        return self.sender.round(self.clock.now_ms())

    def row(self, any_id):
        return self.outbox.inspect(any_id).send

    def rows(self, sql, *parameters):
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(sql, parameters).fetchall()

    def statuses(self):
        return dict(self.rows("SELECT client_message_id, status FROM outbox ORDER BY rowid"))

    def set(self, key, status, **columns):
        """Puts a row into a state as if it had come there."""
        now = self.clock.now_ms()
        also = {"done": "delivered_at", "dead": "died_at", "aborted": "aborted_at"}.get(status)
        values = {"status": status, **({also: now} if also else {}), **columns}
        terms = ", ".join(f"{name} = ?" for name in values)
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(
                f"UPDATE outbox SET {terms} WHERE client_message_id = ?", (*values.values(), key)
            )
