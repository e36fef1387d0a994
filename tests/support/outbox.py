"""An outbox on a real file with a real writer; a broker without a network; a clock that is set."""

import io
import json
from typing import Any

import msgspec
import pytest

from appliance.kernel.auth import ANONYMOUS
from appliance.kernel.batch import BatchRunner
from appliance.kernel.errors import ApplianceError
from appliance.kernel.log import Log
from appliance.kernel.store import Store
from appliance.kernel.writer import StoreSettings
from appliance.outbox import wire, writes
from appliance.outbox.admin import OutboxAdmin
from appliance.outbox.loops import OutboxPruner, Watch
from appliance.outbox.sender import Sender
from appliance.outbox.service import Outbox
from appliance.outbox.settings import OutboxSettings
from tests.support.clock import FakeClock
from tests.support.database_files import execute
from tests.support.fake_broker import FakeBroker, ScriptedTarget

EVERYTHING = {
    "to": "#alerts",
    "mesh": "ops",
    "priority": "low",
    "meta": {"a": 1},
    "reply_to_id": "msg_1",
}


def dead(outbox, key="k1", message="hello", **more):
    """Sends a message, and makes it a dead letter."""
    outbox.send(message, key=key, **(more or EVERYTHING))
    outbox.set(key, "dead", last_error="404: no such topic")


def redrive(outbox, any_id="k1", **more):
    if not more.keys() & {"auto", "new_client_id"}:
        more["auto"] = True
    return outbox.admin.redrive(wire.Redrive(id=any_id, **more)).redriven


class InlinePool:
    """In place of a GreenletPool: deliveries run in the caller."""

    def free_count(self):
        return 1

    def spawn(self, work, *args):
        work(*args)


class PausedPool:
    """In place of a GreenletPool: deliveries wait until the test finishes them."""

    def __init__(self, size):
        self.size = size
        self.work = []

    def free_count(self):
        return self.size - len(self.work)

    def spawn(self, work, *args):
        assert self.free_count() > 0
        self.work.append((work, args))

    def finish(self, index=0):
        work, args = self.work.pop(index)
        work(*args)


def with_paused_pool(new_outbox, size=16, **settings):
    outbox = new_outbox(**settings)
    outbox.sender._pool = pool = PausedPool(size)
    return outbox, pool


class DecodingAdmin(OutboxAdmin):
    """Requests without an idempotency key, their replies decoded."""

    def redrive(self, command, who=ANONYMOUS, key=None):
        reply = super().redrive(command, who, key)
        return msgspec.json.decode(reply.body, type=wire.RedriveResult)


class OutboxFixture:
    """An outbox and what it stands on; `reopen` is a restart."""

    def __init__(self, path, clock=None, target=None, runner=BatchRunner, **settings):
        """`target` in place of one that writes into `ledger`."""
        self.path = path
        self.clock = clock or FakeClock()
        self.broker = FakeBroker()
        self.target = target or ScriptedTarget(self.broker)
        self.targets = {"broker": self.target}
        self.runner = runner
        self.lines = io.BytesIO()
        self.settings = msgspec.structs.replace(OutboxSettings(), **settings)
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
        self.service = Outbox(
            self.store, self.settings, self.targets, self.clock, log,
            read_settings=lambda: msgspec.structs.replace(self.service.settings, **self.changed),
        )  # fmt: skip
        self.changed: dict[str, Any] = {}  # settings that `reload` will read
        self.admin = DecodingAdmin(self.service)
        self.sender = Sender(self.service, InlinePool(), self.clock, log, lambda: 0.5)
        self.watch = Watch(self.service)
        self.pruner = OutboxPruner(self.service)
        self.service.open()
        self.store.write(writes.reset_inflight, self.settings.retry.initial_ms, "restarted", ())

    def logged(self, message):
        lines = [json.loads(line) for line in self.lines.getvalue().splitlines()]
        return [line for line in lines if line["msg"] == message]

    def reopen(self):
        self.store.close()
        self.open()

    def send(self, message="hello", key=None, to="#alerts", **more):
        """Status and body as a client has them; refusals are raised."""
        status, body = self.service.send(wire.Send(to=to, message=message, **more), key)
        return status, msgspec.to_builtins(body)

    def round(self):
        return self.sender.round()

    def row(self, any_id):
        return self.service.inspect(any_id).send

    def rows(self, sql, *parameters):
        return execute(self.path, sql, *parameters)

    def statuses(self):
        return dict(self.rows("SELECT client_message_id, status FROM outbox ORDER BY rowid"))

    def set(self, key, status, **columns):
        """Puts a row into a state as if it had come there."""
        now = self.clock.now_ms()
        also = {"done": "delivered_at", "dead": "died_at", "aborted": "aborted_at"}.get(status)
        values = {"status": status, **({also: now} if also else {}), **columns}
        terms = ", ".join(f"{name} = ?" for name in values)
        self.rows(f"UPDATE outbox SET {terms} WHERE client_message_id = ?", *values.values(), key)


def refused(outbox, **more):
    with pytest.raises(ApplianceError) as caught:
        outbox.send(**more)
    return caught.value
