"""Every operation of the relay and of the mailbox succeeds as the served description says."""

import json
import time

import pytest
import requests
import schemathesis

from appliance.kernel.clock import SystemClock
from appliance.network.envelope import Correspondence
from appliance.network.request import request_headers
from appliance.sdk.network.folder import AgentConfig, AgentFolder
from tests.cli.test_network import free_ports
from tests.http.relay.test_table import ROWS, populate, send, template
from tests.support.clock import FakeClock, SteppingClock
from tests.support.relay import RelayFixture, key
from tests.support.servedhub import ServedHub

SETTINGS = '[roles]\nrelay = true\nnetwork = true\n[relay]\noptions = ["v1"]\n'


class ServedRelay:
    """Requests to a served relay, in the way of RelayFixture."""

    def __init__(self, hub, otto):
        self.hub, self.otto, self.clock = hub, otto, SteppingClock()

    def request(self, method, path, body=None, *, by=None, signer=None):
        raw = b"" if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        if by is not None:
            now_ms = self.clock.now_ms()
            headers |= request_headers(signer or key(by), by, method, path, raw, now_ms)
        url = f"http://127.0.0.1:{self.hub.port}{path}"
        return requests.request(method, url, data=raw, headers=headers, timeout=30)


@pytest.fixture
def relay(tmp_path):
    hub = ServedHub(tmp_path / "w", "--no-limits", settings=SETTINGS)
    fixture = RelayFixture(hub.datadir.dir, clock=FakeClock(time.time_ns() // 1_000_000))
    otto = populate(fixture).otto
    fixture.close()
    (port,) = free_ports(1)
    config = AgentConfig("bert", f"http://127.0.0.1:{port}", "https://bert.example.org/inbox")
    AgentFolder.create(hub.datadir.dir / "network" / "bert", config, key("bert"))
    with hub.running("--port", str(port)):
        yield ServedRelay(hub, otto)


def test_every_operation_succeeds_as_described(relay):
    health = relay.hub.http.get("/health").body
    assert health["status"] == "ok"
    assert {"network-2.0", "network-2.1"} <= set(health["features"])
    document = relay.hub.http.get("/api/v1/openapi.json").body
    described = {
        operation.ok().label: operation.ok()
        for operation in schemathesis.openapi.from_dict(document).get_all_operations()
    }
    sealed = Correspondence(key("anna"), "anna", key("bert").public, "bert").seal(
        {"text": "hi"}, "7f9c24e8-3b12-4fef-91e0-56a2d5a1c001", SystemClock().now_ms()
    )
    for row, by, body, status, _ in [*ROWS, ("POST /network/inbox", None, sealed, 200, {"ok"})]:
        reply = send(relay, row, by, body)
        assert reply.status_code == status, (row, reply.text)
        method, path = template(row).split(" ")
        assert str(status) in document["paths"][path][method.lower()]["responses"], row
        described[f"{method} {path}"].validate_response(reply)
