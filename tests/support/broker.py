"""A broker on a clock that stands still, with members whose keys are known, and its app."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from falcon.testing import Result

from appliance.broker import wire
from appliance.broker.dispatch import Dispatch
from appliance.broker.local_connection import LocalConnection
from appliance.broker.loops import BrokerPruner, Deliverer, LeaseExpiry
from appliance.broker.orphans import Orphan
from appliance.broker.registry import Registry
from appliance.broker.resources import routes
from appliance.broker.service import Broker
from appliance.broker.settings import BrokerSettings
from appliance.broker.webhook_feeder import MeshWebhookFeeder
from appliance.kernel.auth import ADMIN, Principal, TokenBook, hash_token
from appliance.kernel.batch import BatchRunner
from appliance.kernel.clock import Clock
from appliance.kernel.ids import random_id
from appliance.kernel.log import Log
from appliance.kernel.store import Store
from appliance.kernel.writer import StoreSettings
from appliance.mesh.fingerprint import fingerprint
from appliance.mesh.push import Push
from appliance.mesh.signing import (
    hello_text,
    public_key,
    request_text,
    sign,
)
from appliance.web.app import make_app
from appliance.web.guard import Guard
from appliance.web.limits import RateLimiter
from appliance.web.settings import HttpSettings
from appliance.workspace.schema import migrate
from tests.support.clock import FakeClock
from tests.support.http import NO_LIMITS, TOKEN, Client, Lines

ACCEPT_TOKEN, READ_TOKEN = "a" * 64, "r" * 64


def seed(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def key(name: str) -> str:
    return public_key(seed(name))


def item(
    id_: str,
    body: str = "hello",
    *,
    mesh: str = "lab",
    topic: str | None = None,
    queue: str | None = None,
    to: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A send with its right fingerprint; a dm to a member by name."""
    if to is not None:
        kind, ref = "dm", to if len(to) == 64 else key(to)
    else:
        kind, ref = ("queue", queue) if queue is not None else ("topic", topic or "alerts")
    digest = fingerprint(
        kind,  # type: ignore[arg-type]
        ref,  # type: ignore[arg-type]
        body.encode("utf-8", "surrogatepass"),
        reply_to_id=more.get("reply_to_id"),
        priority=more.get("priority", "next"),
        meta=more.get("meta"),
    )
    return {
        "mesh": mesh,
        "client_message_id": id_,
        "request_fingerprint": digest.hex(),
        "envelope_version": 1,
        "destination_kind": kind,
        "destination_ref": ref,
        "body": body,
        **more,
    }


def signed(
    name: str,
    method: str,
    path: str,
    body: bytes,
    now_ms: int,
    broker: str,
    *,
    query: str = "",
    nonce: str = "",
    **wrong: str,
) -> dict[str, str]:
    """The headers of a member's request to the broker of that id."""
    stamp, nonce = str(now_ms), nonce or random_id()
    text = request_text(method, broker, path.encode(), query, stamp, nonce, body)
    return {
        "X-Agentlip-Member": key(name),
        "X-Agentlip-Broker": broker,
        "X-Agentlip-Timestamp": stamp,
        "X-Agentlip-Nonce": nonce,
        "X-Agentlip-Signature": sign(seed(name), text),
        **wrong,
    }


def hello(name: str, mesh: str = "lab") -> dict[str, Any]:
    """The first frame of a link, which is answered with a challenge."""
    return {"type": "hello", "mesh": mesh, "member": key(name)}


def proof(challenge: dict[str, Any], name: str, mesh: str = "lab", **more: Any) -> dict[str, Any]:
    """The second, signed."""
    text = hello_text(challenge["broker_id"], mesh, key(name), challenge["nonce"])
    signature = sign(seed(name), text)
    return {**hello(name, mesh), "nonce": challenge["nonce"], "signature": signature, **more}


class BrokerFixture:
    """Mesh `lab` has anna, bert and cleo; bert and cleo subscribe to `alerts`; `jobs` is bert's."""

    def __init__(
        self,
        folder: Path,
        *,
        runner: type[BatchRunner] = BatchRunner,
        clock: Clock | None = None,
        webhook_outbox: Any = None,
        fill: bool = True,
        **values: Any,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.path = folder / "broker.sqlite3"
        self.clock = FakeClock() if clock is None else clock
        self.lines = Lines()
        self.log = Log(self.lines, clock=self.clock)
        if not self.path.exists():
            migrate(self.path, "broker", clock=self.clock, log=Log(sys.stderr.buffer))
        self.settings = BrokerSettings(**values)
        dispatch = Dispatch()
        self.store = Store(
            "broker",
            self.path,
            StoreSettings(synchronous="NORMAL", free_bytes_min=0),
            self.clock,
            self.log,
            publish=dispatch.on_commit,
            runner=runner,
        )
        self.service = Broker(self.store, dispatch, self.settings, self.clock, self.log)
        self.service.open()
        self.webhooks = MeshWebhookFeeder(self.service, webhook_outbox)
        self.registry = Registry(self.service, webhook_outbox and webhook_outbox.check)
        self.deliverer = Deliverer(self.service)
        self.lease_expiry = LeaseExpiry(self.service)
        self.pruner = BrokerPruner(self.service, self.registry)
        if fill and "lab" not in self.service.directory.by_slug:
            self.fill()

    def fill(self) -> None:
        self.registry.create_mesh(wire.CreateMesh("lab"))
        for name in ("anna", "bert", "cleo"):
            self.registry.add_member("lab", wire.AddMember(key(name), name))
        self.registry.create_destination("lab", "topic", "alerts")
        self.registry.create_destination("lab", "queue", "jobs")
        for name in ("bert", "cleo"):
            self.registry.subscribe("lab", "topic", "alerts", name)
        self.registry.subscribe("lab", "queue", "jobs", "bert")

    def close(self) -> None:
        assert self.store.close()

    # -- sending -----------------------------------------------------------------------------

    def send(self, id_: str, body: str = "hello", sender: str = "anna", **more: Any) -> Any:
        return self.service.accept(key(sender), item(id_, body, **more))

    # -- receiving -----------------------------------------------------------------------------

    def connect(self, name: str, callback: Any = None) -> "Mailbox":
        return Mailbox(self, name, callback)

    def deliver(self) -> None:
        """Until nothing is left to be handed out."""
        while self.deliverer.run_once(self.clock.now_ms())["batches"]:
            pass

    # -- looking -------------------------------------------------------------------------------

    def rows(self, sql: str, *parameters: Any) -> list[Any]:
        return self.store.read(lambda reader: reader.execute(sql, parameters).fetchall())

    def count(self, table: str) -> int:
        return int(self.rows(f"SELECT count(*) FROM {table}")[0][0])

    def counts(self) -> dict[str, int]:
        tables = (
            "client_message_dedupe",
            "topic_message",
            "message_queue",
            "message_history",
            "delivery_queue",
            "mention_index",
        )
        return {table: self.count(table) for table in tables}

    def orphans(self) -> list[Orphan]:
        return self.registry.check_orphans()

    # -- over HTTP -----------------------------------------------------------------------------

    def client(self, token: str | None = None, *, limits: Any = NO_LIMITS, **more: Any) -> Client:
        book = TokenBook(
            (hash_token(secret), Principal(name, name, frozenset(scopes)))
            for secret, name, scopes in (
                (TOKEN, "workspace", [ADMIN]),
                (ACCEPT_TOKEN, "sender", [wire.ACCEPT]),
                (READ_TOKEN, "reader", [wire.READ]),
            )
        )
        http = HttpSettings()
        app = make_app(
            routes(self.service, self.registry),
            Guard(book, http, self.clock, implied=wire.SCOPES.implied),
            RateLimiter(limits, self.clock),
            log=self.log,
            clock=self.clock,
            instance_id="broker-1",
        )
        return Client(app, token, **more)

    @property
    def id(self) -> str:
        return self.service.signatures.broker_id

    def signed_request(
        self, name: str, method: str, path: str, body: Any = None, **wrong: str
    ) -> Result:
        """A request signed by that member."""
        raw = b"" if body is None else json.dumps(body).encode()
        headers = signed(name, method, path, raw, self.clock.now_ms(), self.id, **wrong)
        return self.request(method, path, raw, headers)

    def request(
        self, method: str, path: str, raw: bytes, headers: dict[str, str], query: str = ""
    ) -> Result:
        """A request as it is, signed or not."""
        if raw:
            headers = {**headers, "Content-Type": "application/json"}
        return self.client().simulate_request(
            method, path, body=raw, headers=headers, query_string=query or None
        )


class Mailbox:
    """A local connection that keeps and acks messages, unless `callback` is given."""

    def __init__(self, broker: BrokerFixture, name: str, callback: Any = None) -> None:
        self.broker = broker
        self.got: list[Push] = []
        self.events: list[dict[str, Any]] = []
        self.connection = LocalConnection(
            broker.service, "lab", key(name), callback or self._keep, self.events.append
        )

    def _keep(self, pushes: list[Push]) -> None:
        self.got += pushes

    @property
    def bodies(self) -> list[str]:
        return [push.body for push in self.got]

    def receive(self) -> list[str]:
        """Claim, receive, ack; everything received so far."""
        self.broker.deliver()
        self.connection.run_once(self.broker.clock.now_ms())
        self.broker.deliver()
        return self.bodies
