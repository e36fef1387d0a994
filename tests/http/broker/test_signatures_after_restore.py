"""Signatures that a member made before the broker's store was restored."""

import json

from tests.support.broker import BrokerFixture, item, signed
from tests.support.database_files import execute

ACCEPT = "/broker/v1/accept"


def test_signature_before_restore_is_refused_without_nonces(tmp_path):
    broker = BrokerFixture(tmp_path)
    raw = json.dumps(item("m1")).encode()
    old = signed("anna", "POST", ACCEPT, raw, broker.clock.now_ms(), broker.id)
    path, now_ms = broker.path, broker.clock.now_ms()
    broker.close()
    execute(path, "INSERT INTO meta VALUES ('signed_after_ms', ?)", str(now_ms))
    broker = BrokerFixture(tmp_path)
    assert broker.request("POST", ACCEPT, raw, old).json["code"] == "STALE_SIGNATURE"
    broker.clock.pass_seconds(1)
    new = signed("anna", "POST", ACCEPT, raw, broker.clock.now_ms(), broker.id)
    assert broker.request("POST", ACCEPT, raw, new).status_code == 201
    broker.close()
