"""A lost key gives way to another after the owner's code and an hour that contacts see."""

from appliance.kernel.clock import DAY_MS, HOUR_MS, iso
from appliance.relay.loops import KeyRecoverer
from tests.http.relay.test_table import rotation
from tests.support.relay import RelayFixture, key, recovery


def begin(relay, name="anna", **more):
    relay.verify(name, recovered=name)
    return recover(relay, name, **more)


def recover(relay, name="anna", **more):
    body = recovery(name) | more
    return relay.request("POST", f"/registry/agents/{name}/recover", body, address=f"c {name}")


def contact(relay, by="bert"):
    (row,) = relay.request("GET", "/contacts", by=by).json
    return row["publicKey"], row["recoveryInProgress"], row["keyUpdatedAt"]


def run_recoverer(relay, hours=1.0):
    relay.clock.pass_seconds(hours * 3600)
    return KeyRecoverer(relay.relay).run_once(relay.clock.now_ms())


def test_recovered_key_takes_effect_after_an_hour(relay):
    relay.connect("anna", "bert")
    begun = begin(relay)
    assert begun.json == {"ok": True, "effectiveAt": iso(relay.clock.now_ms() + HOUR_MS)}
    old, new = str(key("anna").public), recovery("anna")["publicKey"]
    assert contact(relay) == (old, True, None)
    assert run_recoverer(relay, 0.9) == {"recovered": 0}
    assert contact(relay) == (old, True, None)
    assert run_recoverer(relay, 0.1) == {"recovered": 1}
    assert contact(relay) == (new, False, iso(relay.clock.now_ms()))
    signed = relay.request("GET", "/contacts", by="anna", signer=key("recovered anna"))
    assert signed.status_code == 200
    assert relay.request("GET", "/contacts", by="anna").json["code"] == "BAD_SIGNATURE"
    events = relay.request("GET", "/contacts/events", by="bert").json["events"]
    assert events[-1]["event"] == "rotated"
    (last,) = relay.rows("SELECT event, public_key FROM key_log ORDER BY number DESC LIMIT 1")
    assert last == ("recovered", new)


def test_present_key_cancels_the_recovery(relay):
    relay.connect("anna", "bert")
    begin(relay)
    seen = relay.request("PUT", "/presence", {"endpoint": "https://anna.example.org/"}, by="anna")
    assert seen.json == {"ok": True, "recoveryInProgress": True}
    path = "/registry/agents/anna/recover"
    assert relay.request("DELETE", path, by="bert").status_code == 403
    assert relay.request("DELETE", path, by="anna").json == {"ok": True}
    assert relay.request("DELETE", path, by="anna").status_code == 404
    assert run_recoverer(relay) == {"recovered": 0}
    assert contact(relay)[0] == str(key("anna").public)


def test_thief_of_the_key_ends_only_one_recovery(relay):
    cancel = "DELETE", "/registry/agents/anna/recover"
    begin(relay)
    assert relay.request(*cancel, by="anna").status_code == 200
    relay.clock.pass_seconds(3600)
    assert begin(relay).json["effectiveAt"] == iso(relay.clock.now_ms() + DAY_MS)
    rotate = "POST", "/registry/agents/anna/rotate-key", rotation("anna")
    for refused in (relay.request(*cancel, by="anna"), relay.request(*rotate, by="anna")):
        assert (refused.status_code, refused.json["code"]) == (409, "RECOVERY_CONTESTED")
    assert run_recoverer(relay, 23.9) == {"recovered": 0}
    assert run_recoverer(relay, 0.1) == {"recovered": 1}
    assert relay.rows("SELECT public_key FROM agents WHERE name = 'anna'") == [
        (recovery("anna")["publicKey"],)
    ]


def test_recovery_without_the_owners_code_is_refused(relay):
    assert recover(relay).json["code"] == "EMAIL_NOT_VERIFIED"
    relay.verify("anna")  # a code that is bound to no key
    assert recover(relay).json["code"] == "EMAIL_NOT_VERIFIED"
    relay.verify("anna", "thief@example.org", recovered="anna")
    assert recover(relay, ownerEmail="thief@example.org").json["code"] == "EMAIL_NOT_VERIFIED"
    assert relay.rows("SELECT * FROM recoveries") == []


def test_recovery_that_the_new_key_did_not_sign_is_refused(relay):
    wrong = begin(relay, proof=key("bert").sign(b"x"))
    assert (wrong.status_code, wrong.json["code"]) == (401, "BAD_SIGNATURE")


def test_revoked_agent_has_no_recovery(relay):
    begin(relay)
    relay.as_admin("POST", "/registry/agents/anna/revoke")
    assert run_recoverer(relay) == {"recovered": 0}
    relay.clock.pass_seconds(3600)
    assert begin(relay).json["code"] == "EMAIL_NOT_VERIFIED"


def test_unknown_and_other_owners_agents_are_refused_alike(tmp_path):
    relay = RelayFixture(tmp_path / "relay", "private-directory")
    relay.add("anna")
    relay.verify("anna", "eve@example.org", recovered="anna")
    relay.verify("nobody", "eve@example.org", recovered="nobody")
    replies = [recover(relay, name, ownerEmail="eve@example.org") for name in ("anna", "nobody")]
    first, second = [(reply.status_code, reply.json["code"]) for reply in replies]
    assert first == second
    relay.close()
