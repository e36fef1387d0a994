"""Hostile requests to incoming webhooks: wrong bodies and headers, garbage, texts of strangers."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.hub.incoming import senders, wire
from appliance.kernel.blank import is_printable
from appliance.kernel.metrics import REGISTRY
from tests.unit.hub.incoming import samples
from tests.unit.hub.incoming.samples import payload


def refusals(reason):
    value = REGISTRY.get_sample_value("agentlip_incoming_refused_total", {"reason": reason})
    return value or 0.0


def test_body_above_the_limit_is_refused(fixture):
    fixture.add("ci", "json")
    for size, status in ((512 * 1024, 201), (512 * 1024 + 1, 400)):
        body = b'{"title":"x","more":"%b"}' % (b"x" * (size - 23))
        assert len(body) == size
        result = fixture.deliver("ci", body, samples.bearer(body, 0))
        assert result.status_code == status, result.text
    assert result.json["code"] == "PAYLOAD_TOO_LARGE"


WRONG_BODIES = {
    "no JSON": b"hello",
    "a list": b"[]",
    "a text": b'"x"',
    "invalid UTF-8": b'{"title":"\xff"}',
    "a NUL": b'{"title":"a\\u0000b"}',
    "deep nesting": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "many brackets": b'{"a":[' + b"[]," * 100_000 + b"1]}",
    "a huge integer": b'{"title":1' + b"0" * 400 + b"}",
    "not a number": b'{"title":NaN}',
    "half a body": b'{"title":',
}


@pytest.mark.parametrize("problem", WRONG_BODIES)
def test_wrong_body_is_a_typed_error(fixture, problem):
    fixture.add("ci", "json")
    body = WRONG_BODIES[problem]
    before = refusals("payload") + refusals("size")
    result = fixture.deliver("ci", body, samples.bearer(body, 0))
    assert result.status_code == 400, result.text
    assert result.json["hint"]
    assert refusals("payload") + refusals("size") == before + 1
    assert fixture.messages() == []


@pytest.mark.parametrize(
    ("template", "body"),
    [
        ("alertmanager", {"status": "firing"}),
        ("alertmanager", {"status": "firing", "alerts": {}}),
        ("alertmanager", {"status": {}, "alerts": [1]}),
        ("healthchecks", {"name": "x"}),
        ("gitlab", {"object_kind": []}),
    ],
)
def test_payload_of_another_sender_is_refused(fixture, template, body):
    fixture.add("ci", template)
    text = json.dumps(body).encode()
    headers = samples.gitlab(text, 0) if template == "gitlab" else samples.bearer(text, 0)
    result = fixture.deliver("ci", text, headers)
    assert (result.status_code, result.json["code"]) == (400, "BAD_DELIVERY")


@pytest.mark.parametrize("missing", ["X-GitHub-Event", "X-GitHub-Delivery"])
def test_github_request_without_its_headers_is_refused(fixture, missing):
    fixture.add("ci", "github")
    body = payload("github_push")
    headers = samples.github(body, 0)
    del headers[missing]
    result = fixture.deliver("ci", body, headers)
    assert (result.status_code, result.json["code"]) == (400, "BAD_DELIVERY")
    assert missing in result.json["error"]


@pytest.mark.parametrize("sender", samples.SENDERS)
def test_refusal_takes_one_hmac_for_any_name_and_credential(fixture, monkeypatch, sender):
    body, headers = fixture.endpoint_for(sender)
    sizes, digest = [], senders.hmac.digest

    def counting(key, signed, name):
        sizes.append(len(signed) >= len(body))
        return digest(key, signed, name)

    monkeypatch.setattr(senders.hmac, "digest", counting)
    for name, given_headers in (("unknown", headers), ("unknown", {}), ("ci", {})):
        assert fixture.deliver(name, body, given_headers).status_code == 401
    assert sizes == [True] * 3


def test_other_media_type_is_refused(fixture):
    fixture.add("ci", "github")
    body = payload("github_push")
    form = {**samples.github(body, 0), "Content-Type": "application/x-www-form-urlencoded"}
    assert fixture.deliver("ci", body, form).status_code == 415


def test_delivery_id_with_strange_characters_is_refused(fixture):
    fixture.add("ci", "json")
    body = payload("json")
    for id_ in ("x" * 201, "a b", "\xe9"):
        headers = {**samples.bearer(body, 0), "Idempotency-Key": id_}
        assert fixture.deliver("ci", body, headers).status_code == 400


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
    | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip
known = st.sampled_from(
    [
        "status", "alerts", "labels", "annotations", "name", "title", "object_kind",
        "object_attributes", "commits", "message", "project", "user", "sender", "repository",
        "issue", "pull_request", "ref", "after", "url", "html_url", "text", "n_pings",
    ]
)  # fmt: skip
payloads = st.dictionaries(known | st.text(max_size=8), values, max_size=8)
events = st.sampled_from(["push", "issues", "pull_request", "workflow_run", "issue_comment", "x"])


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=payloads, template=st.sampled_from(sorted(wire.Template.__args__)), event=events)
def test_any_json_is_accepted_or_refused_with_a_type(fixture, body, template, event):
    if not fixture.incoming._endpoints:
        for name in wire.Template.__args__:
            fixture.add(name, name)
    tested = {"payload": json.dumps(body), "headers": {"X-GitHub-Event": event}}
    result = fixture.ask("POST", f"/{template}/test", tested | {"send": True})
    assert result.status_code in (200, 400), result.text
    if result.status_code == 400:
        assert result.json["code"] in ("BAD_DELIVERY", "INVALID_INPUT")
    elif result.json["text"]:
        text = result.json["text"]
        assert len(text.encode()) <= 65_536
        lines = text.replace("@\u200b", "@").split("\n")
        assert [line for line in lines if not is_printable(line)] == []
        assert "@" not in text.replace("@\u200b", "")


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    headers=st.dictionaries(
        st.sampled_from(
            [
                "X-Hub-Signature-256",
                "Authorization",
                "webhook-id",
                "webhook-timestamp",
                "webhook-signature",
                "X-Gitlab-Token",
                "X-Grafana-Alerting-Signature",
                "X-Grafana-Alerting-Timestamp",
            ]
        ),
        st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=80),
    ),
    template=st.sampled_from(sorted(wire.Template.__args__)),
)
def test_garbage_in_headers_is_refused(fixture, headers, template):
    if not fixture.incoming._endpoints:
        for name in wire.Template.__args__:
            fixture.add(name, name)
    fixture.env.clock.tick(1000)
    result = fixture.deliver(template, b"{}", headers)
    assert result.status_code == 401
    assert result.json["code"] == "DELIVERY_REFUSED"


def test_hostile_texts_have_no_effect(fixture):
    fixture.add("ci", "github")
    body = json.loads(payload("github_pull_request"))
    body["pull_request"]["title"] = "@everyone [x](http://evil) <b> `code`\r\n# head \u202e\x1b[31m"
    body["sender"]["login"] = "a" * 5000
    body["pull_request"]["html_url"] = "javascript:alert(1)"
    text = json.dumps(body).encode()
    assert fixture.deliver("ci", text, samples.github(text, 0, "pull_request")).status_code == 201
    (message,) = fixture.messages()
    assert "@everyone" not in message
    assert "\\[x\\](http://evil) \\<b\\>" in message
    assert "\x1b" not in message
    assert "\u202e" not in message
    assert "javascript" not in message
    assert len(message) < 1500
    assert message.count("\n") == 2
