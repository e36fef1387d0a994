"""Incoming webhooks over HTTP on a real file: endpoints, senders, repetitions, refusals."""

import json

import pytest

from appliance.hub.incoming import wire
from appliance.hub.incoming.senders import verify
from appliance.hub.rows import IncomingRow
from tests.support.http import TOKEN
from tests.unit.hub.incoming import samples
from tests.unit.hub.incoming.conftest import PATH, IncomingFixture
from tests.unit.hub.incoming.samples import SECRET, SENDERS, SIGNED_TIMES, payload

# -- senders -------------------------------------------------------------------------------


@pytest.mark.parametrize("sender", SENDERS)
def test_delivery_makes_one_message_and_repetition_returns_it(fixture, sender):
    body, headers = fixture.endpoint_for(sender)
    first = fixture.deliver("ci", body, headers)
    assert first.status_code == 201, first.text
    fixture.env.clock.tick(1000)
    again = fixture.deliver("ci", body, headers)
    if SENDERS[sender][3]:
        assert (again.status_code, again.json) == (200, first.json)
        assert again.headers["Idempotency-Replayed"] == "true"
    else:
        assert again.status_code == 201
        assert again.json["message_id"] != first.json["message_id"]
    assert len(fixture.messages()) == (1 if SENDERS[sender][3] else 2)
    ((source, value),) = fixture.env.rows(
        "SELECT source_message_id, value_json FROM topic_attachments LIMIT 1"
    )
    assert source == first.json["message_id"]
    assert json.loads(value)["template"] == SENDERS[sender][0]


@pytest.mark.parametrize("sender", SENDERS)
def test_wrong_credentials_are_refused_like_an_unknown_name(fixture, sender):
    body, headers = fixture.endpoint_for(sender)
    unknown = fixture.deliver("nobody", body, headers)
    assert unknown.status_code == 401
    for wrong in (
        {name: value for name, value in headers.items() if not is_credential(name)},
        {name: changed(name, value) for name, value in headers.items()},
        {name: "" if is_credential(name) else value for name, value in headers.items()},
        {name: value + "0" if is_credential(name) else value for name, value in headers.items()},
    ):
        refused = fixture.deliver("ci", body, wrong)
        assert refused.status_code == 401, wrong
        assert without_id(refused) == without_id(unknown)
    if SECRET not in "".join(headers.values()):
        assert fixture.deliver("ci", body + b" ", headers).status_code == 401
    assert fixture.messages() == []


def is_credential(name):
    return name.lower() in (
        "authorization", "x-hub-signature-256", "x-gitlab-token", "x-ci-signature",
        "x-grafana-alerting-signature", "webhook-signature",
    )  # fmt: skip


def changed(name, value):
    return value[:-3] + ("AAA" if value[-3:] != "AAA" else "BBB") if is_credential(name) else value


def without_id(result):
    return {name: value for name, value in result.json.items() if name != "request_id"}


@pytest.mark.parametrize("sender", SIGNED_TIMES)
@pytest.mark.parametrize(("late_s", "status"), [(300, 201), (-300, 201), (301, 401), (-301, 401)])
def test_signed_time_is_valid_for_five_minutes(fixture, sender, late_s, status):
    body, _ = fixture.endpoint_for(sender)
    headers = SENDERS[sender][2](body, fixture.now_s - late_s)
    result = fixture.deliver("ci", body, headers)
    assert result.status_code == status
    assert status == 201 or result.json["code"] == "DELIVERY_STALE"


@pytest.mark.parametrize("sender", ["github", "grafana", "json header"])
def test_recorded_request_with_another_id_makes_nothing(fixture, sender):
    body, headers = fixture.endpoint_for(sender)
    first = fixture.deliver("ci", body, headers)
    replay = {**headers, "X-GitHub-Delivery": "other", "Idempotency-Key": "other"}
    again = fixture.deliver("ci", body, replay)
    assert (again.status_code, again.json) == (200, first.json)
    assert len(fixture.messages()) == 1


def test_unsigned_id_does_not_replace_the_signed_one(fixture):
    body, headers = fixture.endpoint_for("gitlab signature")
    first = fixture.deliver("ci", body, headers)
    again = fixture.deliver("ci", body, {**headers, "Idempotency-Key": "other"})
    assert (again.status_code, again.json) == (200, first.json)


def test_github_documentation_example_is_verified():
    secret, body = "It's a Secret to Everybody", b"Hello, World!"
    given = "sha256=757107ea0eb2509fc211221cce984b8a" + "37570b6d7586c22c46f4379c8b043e17"
    row = IncomingRow("x", "github", secret, None, "t", None, "[]", "")
    assert verify(row, {"x-hub-signature-256": given}, body, 0).repeats


def test_ping_is_answered_without_a_message(fixture):
    fixture.add("ci", "github")
    body = payload("github_ping")
    result = fixture.deliver("ci", body, samples.github(body, 0, "ping"))
    assert (result.status_code, result.json) == (200, {"endpoint": "ci", "ping": True})
    assert fixture.messages() == []


def test_alert_that_resolves_or_fires_again_is_a_new_delivery(fixture):
    fixture.add("ci", "alertmanager")
    body = json.loads(payload("alertmanager"))

    def deliver():
        text = json.dumps(body).encode()
        return fixture.deliver("ci", text, samples.bearer(text, 0)).status_code

    assert deliver() == 201
    body["truncatedAlerts"] = 1
    assert deliver() == 200
    body["status"] = body["alerts"][0]["status"] = "resolved"
    assert deliver() == 201
    body["status"] = body["alerts"][0]["status"] = "firing"
    body["alerts"][0]["startsAt"] = "2023-02-07T13:08:45.828Z"
    assert deliver() == 201


# -- endpoints -------------------------------------------------------------------------------


def test_endpoint_shows_its_secret_once(fixture):
    made = fixture.ask("POST", "", {"name": "ci", "template": "json", "topic_id": fixture.topic})
    assert made.status_code == 201
    assert made.json["secret"].startswith("whsec_")
    endpoint = {
        "name": "ci", "template": "json", "path": "/api/v1/incoming/ci", "topic_id": fixture.topic,
        "stream": None, "to": [], "signature_header": None,
        "created_at": made.json["endpoint"]["created_at"],
    }  # fmt: skip
    assert fixture.ask("GET").json == {"endpoints": [endpoint]}
    assert fixture.ask("GET", "/ci").json == {"endpoint": endpoint}
    assert fixture.ask("POST", "", {**endpoint, "stream": None}).status_code in (400, 409)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "BAD_INCOMING"),
        ({"topic_id": "ops/builds", "stream": "s"}, 400, "BAD_INCOMING"),
        ({"stream": "s", "to": ["ana"]}, 400, "BAD_INCOMING"),
        ({"topic_id": "ops/builds", "signature_header": "X-S"}, 400, "BAD_INCOMING"),
        ({"topic_id": "ops/unknown"}, 404, "NOT_FOUND"),
        ({"topic_id": "topic_unknown"}, 404, "NOT_FOUND"),
        ({"topic_id": "ops/builds", "name": "Up Case"}, 400, "INVALID_INPUT"),
        ({"topic_id": "ops/builds", "secret": "short"}, 400, "BAD_INCOMING"),
        ({"topic_id": "ops/builds", "secret": "sixteen or more c"}, 400, "BAD_INCOMING"),
        ({"topic_id": "ops/builds", "to": [" "]}, 400, "INVALID_INPUT"),
        ({"topic_id": "ops/builds", "template": "jira"}, 400, "INVALID_INPUT"),
        ({"topic_id": "ops/builds", "name": "taken"}, 409, "INCOMING_EXISTS"),
    ],
)
def test_wrong_endpoint_is_refused(fixture, body, status, code):
    fixture.add("taken", "json")
    result = fixture.ask("POST", "", {"name": "ci", "template": "github", **body})
    assert (result.status_code, result.json["code"]) == (status, code), result.text
    assert result.json["hint"]


def test_number_of_endpoints_is_limited(fixture, monkeypatch):
    monkeypatch.setattr(wire, "ENDPOINTS_MAX", 1)
    fixture.add("one", "json")
    body = {"name": "two", "template": "json", "topic_id": fixture.topic}
    result = fixture.ask("POST", "", body)
    assert (result.status_code, result.json["code"]) == (409, "TOO_MANY_INCOMING")


def test_removed_endpoint_accepts_nothing(fixture):
    body, headers = fixture.endpoint_for("github")
    assert fixture.ask("DELETE", "/ci").json == {"name": "ci", "deleted": True}
    assert fixture.deliver("ci", body, headers).status_code == 401
    assert fixture.ask("DELETE", "/ci").status_code == 404
    assert fixture.ask("GET", "/ci").status_code == 404
    assert fixture.ask("POST", "/ci/test", {"payload": "{}"}).status_code == 404


def test_operator_routes_need_a_token(fixture):
    fixture.add("ci", "json")
    bearer = {"Authorization": f"Bearer {SECRET}"}
    for method, path in (("GET", ""), ("POST", ""), ("GET", "/ci"), ("DELETE", "/ci"),
                         ("POST", "/ci/test")):  # fmt: skip
        result = fixture.sender.simulate_request(method, PATH + path, json={}, headers=bearer)
        assert result.status_code == 401, (method, path)
        assert fixture.ask("GET", "/ci").status_code == 200


def test_appliance_token_does_not_authenticate_a_sender(fixture):
    body, _ = fixture.endpoint_for("json token")
    result = fixture.deliver("ci", body, {"Authorization": f"Bearer {TOKEN}"})
    assert result.status_code == 401


def test_preview_posts_only_with_send(fixture):
    fixture.add("ci", "github", to=["ana", "deploy bot"])
    body = {"payload": payload("github_push").decode(), "headers": {"X-GitHub-Event": "push"}}
    shown = fixture.ask("POST", "/ci/test", body)
    assert shown.status_code == 200, shown.text
    assert shown.json["text"].startswith("**Codertocat/Hello-World: ")
    assert (shown.json["accepted"], fixture.messages()) == (None, [])
    sent = fixture.ask("POST", "/ci/test", body | {"send": True}).json
    assert fixture.messages() == [sent["text"]]
    assert sent["accepted"]["message_id"].startswith("msg_")
    assert fixture.env.rows("SELECT name FROM x_entries") == [("ana",), ("deploy bot",)]


@pytest.mark.parametrize("template", wire.Template.__args__)
def test_preview_signs_for_each_template(fixture, template):
    fixture.add("ci", template)
    name = {"github": "github_push", "gitlab": "gitlab_push"}.get(template, template)
    body = {"payload": payload(name).decode(), "headers": {"X-GitHub-Event": "push"}}
    assert fixture.ask("POST", "/ci/test", body).status_code == 200


# -- envelopes -------------------------------------------------------------------------------


def test_delivery_becomes_one_envelope(fixture):
    body, headers = fixture.endpoint_for("github", stream="builds")
    first = fixture.deliver("ci", body, headers)
    again = fixture.deliver("ci", body, headers)
    assert (first.status_code, again.status_code, again.json) == (201, 200, first.json)
    ((stream, envelope),) = fixture.envelopes
    assert (stream, envelope["id"]) == ("builds", first.json["envelope_id"])
    assert envelope["type"] == "incoming.github"
    assert envelope["payload"]["body"] == json.loads(body)
    assert envelope["payload"]["title"].startswith("Codertocat/Hello-World: ")
    assert fixture.messages() == []


def test_envelope_after_a_crash_before_the_commit_has_the_same_id(fixture):
    body, headers = fixture.endpoint_for("github", stream="builds")
    fixture.deliver("ci", body, headers)
    fixture.env.store.write(lambda tx: tx.execute("DELETE FROM x_idempotency").rowcount)
    fixture.deliver("ci", body, headers)
    (_, first), (_, second) = fixture.envelopes
    assert first["id"] == second["id"]


def test_large_payload_is_left_out_of_the_envelope(fixture):
    fixture.add("ci", "json", stream="s")
    body = b'{"title":"x","more":"%b"}' % (b"x" * 300_000)
    assert fixture.deliver("ci", body, samples.bearer(body, 0)).status_code == 201
    assert fixture.envelopes[0][1]["payload"]["body"] is None


def test_envelopes_need_the_courier(env):
    fixture = IncomingFixture(env)
    body, headers = fixture.endpoint_for("github", stream="s")
    fixture.incoming._stream = None
    result = fixture.deliver("ci", body, headers)
    assert (result.status_code, result.json["code"]) == (503, "INCOMING_COURIER_OFF")
    made = fixture.ask("POST", "", {"name": "b", "template": "json", "stream": "s"})
    assert made.status_code == 503


# -- what is kept ----------------------------------------------------------------------------


def test_oldest_delivery_ids_are_pruned_by_number(fixture, monkeypatch):
    monkeypatch.setattr("appliance.hub.incoming.service.KEYS_MAX", 3)
    fixture.add("ci", "json")
    body = payload("json")
    for number in range(5):
        headers = {**samples.bearer(body, 0), "Idempotency-Key": str(number)}
        assert fixture.deliver("ci", body, headers).status_code == 201
        fixture.env.clock.tick(1000)
    assert fixture.incoming.prune(0) == 2
    keys = fixture.env.rows("SELECT key FROM x_idempotency ORDER BY key")
    assert keys == [("id:2",), ("id:3",), ("id:4",)]
    assert fixture.incoming.prune(0) == 0


def test_repeated_id_with_other_content_is_a_repetition(fixture):
    fixture.add("ci", "gitlab")
    first = fixture.deliver("ci", payload("gitlab_push"), samples.gitlab(b"", 0))
    other = fixture.deliver("ci", payload("gitlab_pipeline"), samples.gitlab(b"", 0))
    assert (other.status_code, other.json) == (200, first.json)


# -- rates -----------------------------------------------------------------------------------


def test_wrong_credentials_are_limited_per_address(env):
    fixture = IncomingFixture(env, failures_per_address=3)
    fixture.add("ci", "json")
    statuses = [fixture.deliver("ci", b"{}", {}).status_code for _ in range(5)]
    assert statuses == [401, 401, 401, 429, 429]
    env.clock.tick(1000)
    body = payload("json")
    assert fixture.deliver("ci", body, samples.bearer(body, 0)).status_code == 201
