"""A relay on a clock that stands still, with agents whose keys are known, and its app."""

import hashlib
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from falcon.testing import Result, TestClient

from appliance.kernel.auth import TokenBook
from appliance.kernel.batch import BatchRunner
from appliance.kernel.log import Log
from appliance.kernel.store import Store
from appliance.kernel.writer import StoreSettings
from appliance.network.broadcast import sign_broadcast
from appliance.network.keys import AgentKey, recovery_text
from appliance.network.request import request_headers
from appliance.relay import group_writes, key_log, v1, writes
from appliance.relay.group_routes import group_routes
from appliance.relay.loops import EndpointChecker, RelayPruner
from appliance.relay.resources import routes
from appliance.relay.service import Relay
from appliance.relay.settings import RelaySettings
from appliance.web.app import make_app
from appliance.web.guard import Guard
from appliance.web.limits import RateLimiter
from appliance.web.settings import HttpSettings
from appliance.workspace.schema import migrate
from tests.support.clock import FakeClock
from tests.support.http import NO_LIMITS, Lines

ADMINS = ("ada", "bo")


def key(name: str) -> AgentKey:
    return AgentKey(hashlib.sha256(name.encode()).digest())


def admin_key(name: str) -> AgentKey:
    return key(f"admin {name}")


def recovery(name: str, owner: str | None = None) -> dict[str, str]:
    """Return the request that replaces the agent's lost key by the key `recovered NAME`."""
    made = key(f"recovered {name}")
    proof = made.sign(recovery_text(name, made.public))
    email = owner or f"{name}@example.org"
    return {"publicKey": str(made.public), "ownerEmail": email, "proof": proof}


class SentCodes:
    """Takes the mails; `refuse` is raised instead."""

    def __init__(self) -> None:
        self.mails: list[tuple[str, str]] = []
        self.refuse: Exception | None = None

    def send(self, key: str, address: str, subject: str, text: str) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.mails.append((address, text))

    def last(self) -> str:
        match = re.search(r"\d{6}", self.mails[-1][1])
        assert match is not None
        return match[0]


class RelayFixture:
    """Its admins are ada and bo. They aren't agents yet."""

    def __init__(
        self,
        folder: Path,
        *options: Any,
        runner: type[BatchRunner] = BatchRunner,
        approvals: int = 1,
        clock: FakeClock | None = None,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.path = folder / "relay.sqlite3"
        self.clock = clock or FakeClock()
        self.lines = Lines()
        self.log = Log(self.lines, clock=self.clock)
        new = not self.path.exists()
        if new:
            migrate(self.path, "relay", clock=self.clock, log=Log(sys.stderr.buffer))
        self.store = Store(
            "relay", self.path, StoreSettings(synchronous="NORMAL", free_bytes_min=0),
            self.clock, self.log, runner=runner,
        )  # fmt: skip
        self.codes = SentCodes()
        settings = RelaySettings(options, approvals)
        self.relay = Relay(self.store, self.codes, settings, self.clock, self.log)
        if not self.rows("SELECT 1 FROM admins"):
            for name in ADMINS:
                self.make_admin(name)
        self.store.write(writes.make_relay_key)
        self.store.write(key_log.begin)
        self.store.write(group_writes.end_lost)
        self.relay.open(self.store.write(v1.begin) if "v1" in options else 0)
        self.pruner = RelayPruner(self.relay, folder / "relay-v1")
        self.checker = EndpointChecker(self.relay, lambda _host, _port: ["192.0.2.1"])
        http = HttpSettings(host="0.0.0.0", allowed_hosts=("relay.example",))
        guard = Guard(TokenBook(), http, self.clock)
        app = make_app(
            [*routes(self.relay), *group_routes(self.relay)],
            guard, RateLimiter(NO_LIMITS, self.clock), log=self.log,
            clock=self.clock, instance_id="inst",
        )  # fmt: skip
        self.client = TestClient(app, headers={"Host": "relay.example"})
        self.ticks = 0

    def close(self) -> None:
        assert self.store.close()

    def rows(self, sql: str) -> list[Any]:
        return self.store.read(lambda reader: reader.execute(sql).fetchall())

    # -- requests ------------------------------------------------------------------------------

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        by: str | None = None,
        signer: AgentKey | None = None,
        at_ms: int | None = None,
        address: str = "198.51.100.7",
    ) -> Result:
        """Signed by agent `by`, if there is one. Each signature has a time of its own."""
        raw = b"" if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        if by is not None:
            self.ticks += 1
            now_ms = self.clock.now_ms() + self.ticks if at_ms is None else at_ms
            headers |= request_headers(signer or key(by), by, method, path, raw, now_ms)
        return self.send(method, path, raw, headers, address)

    def send(
        self, method: str, path: str, raw: bytes, headers: dict[str, str], address: str = "::9"
    ) -> Result:
        parts = urlsplit(path)
        return self.client.simulate_request(
            method, parts.path, query_string=parts.query, body=raw, headers=headers,
            remote_addr=address,
        )  # fmt: skip

    def as_admin(self, method: str, path: str, body: Any = None, by: str = "ada") -> Result:
        return self.request(method, path, body, by=by, signer=admin_key(by))

    # -- steps of a new agent ------------------------------------------------------------------

    def verify(
        self,
        name: str,
        email: str | None = None,
        address: str | None = None,
        recovered: str | None = None,
    ) -> None:
        """Verify a mail address, for the key that the agent `recovered` recovers if given."""
        mail = {"agentName": name, "email": email or f"{name}@example.org"}
        if recovered is not None:
            mail["publicKey"] = recovery(recovered)["publicKey"]
        address = address or f"client of {name}"
        assert self.request("POST", "/verify/send", mail, address=address).status_code == 200
        code = {"agentName": name, "code": self.codes.last()}
        assert self.request("POST", "/verify/confirm", code, address=address).status_code == 200

    def register(self, agent: str, address: str | None = None, **more: Any) -> Result:
        body = {
            "name": agent,
            "publicKey": str(key(agent).public),
            "ownerEmail": f"{agent}@example.org",
            "endpoint": f"https://{agent}.example.org/network/inbox",
            **more,
        }
        address = address or f"client of {agent}"
        return self.request("POST", "/registry/agents", body, address=address)

    def add(self, *names: str) -> None:
        """Active agents."""
        for name in names:
            self.verify(name)
            assert self.register(name).status_code == 201
            assert self.as_admin("POST", f"/registry/agents/{name}/approve").status_code == 200

    def make_admin(self, name: str) -> None:
        self.store.write(writes.add_admin, name, str(admin_key(name).public))

    def connect(self, name: str, other: str) -> None:
        """Make two agents contacts."""
        assert self.request("POST", "/contacts/request", {"to": other}, by=name).status_code == 201
        assert self.request("POST", f"/contacts/{name}/accept", by=other).status_code == 200

    def broadcast(self, by: str, kind: str, payload: dict[str, Any]) -> Result:
        signed = sign_broadcast(admin_key(by), by, kind, payload, self.clock.now_ms())  # type: ignore[arg-type]
        body = {"type": kind, "payload": signed.payload, "signature": signed.signature}
        return self.as_admin("POST", "/admin/broadcast", body, by)
