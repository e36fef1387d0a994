"""Members that sign their requests keep their share of the rate, whatever others do."""

import json

from appliance.web.settings import LimitSettings
from tests.support.broker import BrokerFixture, item, signed

ACCEPT, LAB = "/broker/v1/accept", "/broker/v1/meshes/lab"


def test_signed_requests_are_callers_of_their_own_whatever_others_do(tmp_path):
    broker = BrokerFixture(tmp_path)
    limits = LimitSettings(per_connection=0, global_=20, failures_per_address=3)
    client = broker.client(limits=limits)

    def ask(ident, **more):
        raw = json.dumps(item(ident)).encode()
        headers = signed("anna", "POST", ACCEPT, raw, broker.clock.now_ms(), broker.id)
        headers |= {"Content-Type": "application/json"} | more
        return client.simulate_post(ACCEPT, body=raw, headers=headers)

    wrong = {"X-Agentlip-Signature": "0" * 128}
    assert [ask("w", **wrong).status_code for _ in range(20)] == [401] * 3 + [429] * 17
    assert ask("m0").status_code == 201
    nobody = [client.simulate_get(LAB).status_code for _ in range(12)]
    assert nobody == [401] * 7 + [429] * 5
    assert ask("m1").status_code == 201, "verified, although the share of others is used up"
    assert ask("w", **wrong).status_code == 429
    assert client.simulate_get("/nowhere").status_code == 429
    assert [ask(f"n{n}").status_code for n in range(9)] == [201] * 8 + [429]
    broker.close()
