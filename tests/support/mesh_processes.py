"""An outbox, a broker and an inbox on real files, as three processes that can die at any commit.

The line between outbox and broker and the link between broker and inbox go wrong on request.
What a dead process would do after its death it does not do: its store takes nothing any more.
"""

import shutil
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from appliance.broker import negotiation
from appliance.broker import wire as broker_wire
from appliance.broker.writes import Claim
from appliance.inbox.broker_connection import BrokerConnection
from appliance.kernel.batch import BatchRunner, Call, CallOutcome
from appliance.kernel.errors import Unavailable
from appliance.kernel.retry import RetrySettings
from appliance.mesh.broker_endpoint import BrokerEndpoint
from appliance.outbox.target import (
    DeliveryTarget,
    Outgoing,
    Result,
    RetryLater,
    item_of,
    result_of,
)
from appliance.sdk.websocket import SocketBroken
from tests.support import broker, inbox, outbox
from tests.support.clock import FakeClock
from tests.support.database_files import read

SENDER, RECEIVER = broker.key("anna"), inbox.OWN.public_hex
DESTINATIONS = ("#alerts", "queue:jobs", f"dm:{RECEIVER}")
NOWHERE = "#nowhere"
ENDPOINT = BrokerEndpoint(mesh="lab", url="http://127.0.0.1:1")
STORES = ("outbox", "broker", "inbox")
MOMENTS = ("before", "after")
LINES = ("lost", "answer lost", "twice", "killed before", "killed after", "half judged")
STEPS = ("dial", "hello", "negotiate", "receive", "client_ack", "after client_ack")


class ProcessKilled(BaseException):
    """The process ends here."""


class CommitFaults:
    """The commits of one store, counted, and the one that goes wrong: an error is raised
    `before` or `after` it; with `dies` the process has crashed from then on."""

    def __init__(self) -> None:
        self.commits = 0
        self.dead = self.fired = False
        self._at: int | None = None
        self._moment, self._dies = "", False

    def arm(self, commits: int, moment: str, *, dies: bool) -> None:
        """The `commits`-th commit from now on, counted from 1."""
        self._at, self._moment, self._dies = self.commits + commits, moment, dies

    def disarm(self) -> None:
        self._at, self.dead = None, False

    def passes(self, moment: str) -> None:
        if moment == "before":
            self.commits += 1
        if self._at == self.commits and self._moment == moment:
            self._at, self.dead, self.fired = None, self._dies, True
            raise sqlite3.OperationalError(f"a fault {moment} the commit")

    def runner(self) -> type[BatchRunner]:
        points = self

        class Runner(BatchRunner):
            def run(self, calls: Sequence[Call]) -> tuple[list[CallOutcome], list[Any]]:
                if points.dead:
                    return [CallOutcome(error=sqlite3.OperationalError("dead")) for _ in calls], []
                return super().run(calls)

            def commit(self) -> None:
                points.passes("before")
                super().commit()
                points.passes("after")

        return Runner


class FaultyTarget(DeliveryTarget):
    """What the outbox delivers to: the broker, by way of what may go wrong next."""

    name = "broker"
    takes_batches = True

    def __init__(self, mesh: "MeshFixture") -> None:
        self.fault = ""
        self._mesh = mesh

    def deliver_many(self, sends: Sequence[Outgoing]) -> list[Result]:
        fault, self.fault = self.fault, ""
        if fault == "lost":
            return [RetryLater("nothing got through") for _ in sends]
        if fault == "killed before":
            raise ProcessKilled
        if fault == "half judged":
            self._accept(sends[: len(sends) // 2])
            raise ProcessKilled
        results = self._accept(sends)
        if fault == "twice":
            results = self._accept(sends)
        if fault == "killed after":
            raise ProcessKilled
        if fault == "answer lost" or self._mesh.points["broker"].dead:
            return [RetryLater("nobody answered") for _ in sends]
        return results

    def _accept(self, sends: Sequence[Outgoing]) -> list[Result]:
        answers = self._mesh.broker.service.accept_many(SENDER, [item_of(send) for send in sends])
        return [result_of(send, *answer) for send, answer in zip(sends, answers, strict=True)]


class FrameConnection:
    """The broker's end of the inbox's link, without a socket: frames in, frames out."""

    received_at = float("inf")

    def __init__(self, mesh: "MeshFixture") -> None:
        self._mesh = mesh
        self._broker = mesh.broker
        self._connection: Any = None
        self._frames: list[dict[str, Any]] = []
        self._trip("dial")

    def send(self, text: bytes) -> None:
        frame = msgspec.json.decode(text)
        self._trip(frame["type"])
        broker = self._broker.service
        if frame["type"] == "hello":
            self._frames.append({"type": "hello_ack"})
        elif frame["type"] == "negotiate":
            row = broker.directory.mesh("lab")
            offered = negotiation.offer(row)
            self._frames.append({"type": "negotiated", "supported": offered})
            member = broker.directory.member(row.id, RECEIVER)
            self._connection = broker.connect(
                "link", row, member, self._push, self._frames.append, self._close
            )
        elif frame["type"] == "client_ack":
            broker.dispatch.ack(self._connection, frame["message_ids"])
            self._trip("after client_ack")

    def receive(self, _timeout: float) -> list[bytes]:
        self._trip("receive")
        self._mesh.deliver()
        self._trip("")
        frames, self._frames[:] = self._frames[:], []
        return [msgspec.json.encode(frame) for frame in frames]

    def close(self) -> None:
        """Unless the broker has not noticed: then the lease or a newer link ends it."""
        if self._connection is not None and self._mesh.noticed and self._is_up:
            with suppress(sqlite3.Error):  # what it held runs out by itself
                self._broker.service.disconnect(self._connection)

    @property
    def _is_up(self) -> bool:
        return self._broker is self._mesh.broker and not self._mesh.points["broker"].dead

    def _trip(self, step: str) -> None:
        fault = self._mesh.link_fault
        if step and fault == step:
            self._mesh.link_fault = ""
            raise SocketBroken
        if not self._is_up:
            raise SocketBroken

    def _push(self, claims: list[Claim]) -> None:
        self._frames += [{"type": "push", **msgspec.to_builtins(send.push)} for send in claims]

    def _close(self, _code: int, _reason: str) -> None:
        with suppress(sqlite3.Error):
            self._broker.service.disconnect(self._connection)


class MeshFixture:
    """Anna's outbox, the broker and Bert's inbox.

    `received_counts`: how often a listener of the inbox received each message.
    """

    def __init__(self, folder: Path, made: Path | None = None) -> None:
        """`made`: the folder of a closed one, to begin from."""
        if made is not None:
            shutil.copytree(made, folder, dirs_exist_ok=True)
        self.folder = folder
        self.clock = FakeClock()
        self.points = {store: CommitFaults() for store in STORES}
        self.line = FaultyTarget(self)
        self.received_counts: Counter[str] = Counter()
        self.noticed, self.link_fault = True, ""
        self._open_inbox()
        self._open_broker()
        if made is None:
            self._furnish()
        self.outbox = outbox.OutboxFixture(
            self.inbox.datadir.database("outbox"), self.clock, self.line,
            self.points["outbox"].runner(), mesh="lab", retry=RetrySettings(jitter=0.0),
        )  # fmt: skip

    def _furnish(self) -> None:
        registry = self.broker.registry
        registry.create_mesh(broker_wire.CreateMesh("lab"))
        registry.add_member("lab", broker_wire.AddMember(SENDER, "anna"))
        registry.add_member("lab", broker_wire.AddMember(RECEIVER, "bert"))
        for kind, name in (("topic", "alerts"), ("queue", "jobs")):
            registry.create_destination("lab", kind, name)
            registry.subscribe("lab", kind, name, RECEIVER)

    def _open_broker(self) -> None:
        folder = self.inbox.datadir.dir
        runner = self.points["broker"].runner()
        self.broker = broker.BrokerFixture(folder, clock=self.clock, runner=runner, fill=False)

    def _open_inbox(self) -> None:
        self.inbox = inbox.InboxFixture(self.folder, self.clock, self.points["inbox"].runner())
        self.inbox.service.add_listener(self._count)
        self.connection = BrokerConnection(
            ENDPOINT, self.inbox.service, None, inbox.INSTANCE, self.inbox.log,
            dial=lambda *_: FrameConnection(self),
        )  # fmt: skip
        self.connection.retry = RetrySettings(0.001, 0.001)
        self.connection.frames_max = 1  # a commit and an ack for each

    def _count(self, event: Any) -> None:
        if event.message is not None:
            self.received_counts[event.message.client_message_id] += 1

    # -- what happens ------------------------------------------------------------------------

    def restart(self, store: str) -> None:
        """Without a goodbye; whatever was armed is gone."""
        self.points[store].disarm()
        if store == "outbox":
            self.outbox.reopen()
        elif store == "broker":
            self.broker.close()
            self._open_broker()
        else:
            self.connection.stop()
            self.inbox.close()
            self._open_inbox()

    def restart_dead(self) -> None:
        for store, points in self.points.items():
            if points.dead:
                self.restart(store)

    def drain(self) -> None:
        """One round of the outbox."""
        try:
            self.outbox.round()
        except ProcessKilled:
            self.restart("outbox")
        except (sqlite3.Error, Unavailable):
            pass  # its loop goes on

    def deliver(self) -> None:
        """One round of the broker."""
        with suppress(sqlite3.Error, Unavailable):
            self.broker.deliverer.run_once(self.clock.now_ms())

    def receive(self) -> None:
        """One round of the inbox's link."""
        self.clock.pass_seconds(0.01)
        with suppress(sqlite3.Error, Unavailable):
            self.connection.run_once(self.clock.now_ms())

    def pass_seconds(self, seconds: float) -> None:
        """Time passes, and all upkeep is done."""
        self.clock.pass_seconds(seconds)
        for upkeep in (self.outbox.pruner, self.broker.lease_expiry):
            with suppress(sqlite3.Error, Unavailable):
                upkeep.run_once(self.clock.now_ms())

    def settle(self) -> None:
        """Nothing goes wrong any more, and everything comes to its end."""
        self.line.fault = self.link_fault = ""
        self.noticed = True
        self.restart_dead()
        for points in self.points.values():
            points.disarm()
        for _ in range(6):
            self.pass_seconds(40)
            self.drain()
            for _ in range(4):
                self.receive()
            self.deliver()

    def close(self) -> None:
        self.connection.stop()
        self.inbox.close()
        self.outbox.store.close()
        self.broker.close()

    # -- what is there -----------------------------------------------------------------------

    def sends(self) -> dict[str, Any]:
        """Every row of the outbox by its id: status, broker's id, body or None, destination."""
        rows = self.outbox.rows(
            "SELECT client_message_id, status, broker_message_id, payload, payload_dropped_at,"
            " destination_ref FROM outbox ORDER BY rowid"
        )
        return {
            row[0]: (row[1], row[2], None if row[4] is not None else row[3].decode(), row[5])
            for row in rows
        }

    def accepted_there(self) -> dict[str, str]:
        """Ids that the broker says are used up, and its own ids of them."""
        sql = "SELECT client_message_id, broker_message_id FROM client_message_dedupe"
        return dict(self._rows("broker", sql))

    def outstanding(self) -> set[str]:
        """The broker's ids of what it has yet to hand over."""
        rows = self._rows("broker", "SELECT broker_message_id FROM delivery_queue")
        return {row[0] for row in rows}

    def received(self) -> list[tuple[str, str]]:
        """Ids and bodies as the inbox holds them."""
        sql = "SELECT client_message_id, body FROM inbox ORDER BY number"
        return self._rows("inbox", sql)

    def _rows(self, store: str, sql: str) -> list[Any]:
        return read(self.inbox.datadir.database(store), sql)
