"""Findings and extracts of plugins are checked before they are stored."""

import msgspec
import pytest

from appliance.hub import attachments
from appliance.hub import wire as hub_wire
from appliance.hub.plugins import output


def raw(value):
    return msgspec.Raw(msgspec.json.encode(value))


FINDING = {"kind": "k", "span": {"start": 0, "end": 2}, "data": {"a": 1}}
BAD_FINDINGS = {
    "no list": {"kind": "k"},
    "no kind": [{"span": {"start": 0, "end": 1}}],
    "empty kind": [{**FINDING, "kind": ""}],
    "long kind": [{**FINDING, "kind": "k" * 101}],
    "nul in kind": [{**FINDING, "kind": "a\0b"}],
    "negative": [{**FINDING, "span": {"start": -1, "end": 1}}],
    "empty span": [{**FINDING, "span": {"start": 1, "end": 1}}],
    "backwards": [{**FINDING, "span": {"start": 2, "end": 1}}],
    "beyond": [{**FINDING, "span": {"start": 0, "end": 6}}],
    "no number": [{**FINDING, "span": {"start": "0", "end": 1}}],
    "fraction": [{**FINDING, "span": {"start": 0.5, "end": 1}}],
    "huge": [{**FINDING, "span": {"start": 0, "end": 10**30}}],
    "data no object": [{**FINDING, "data": [1]}],
    "data too large": [{**FINDING, "data": {"a": "x" * 16_400}}],
    "an integer beyond 64 bits": [{**FINDING, "data": {"a": [2**63]}}],
    "script": [{**FINDING, "data": {"url": "javascript:alert(1)"}}],
    "script below": [{**FINDING, "data": {"a": [{"HREF": "data:text/html,x"}]}}],
    "too many": [FINDING] * 101,
    "one of many": [FINDING, {**FINDING, "span": {"start": 4, "end": 9}}],
}


@pytest.mark.parametrize("items", BAD_FINDINGS.values(), ids=BAD_FINDINGS)
def test_invalid_findings_are_refused_as_a_whole(items):
    with pytest.raises(output.BadOutput):
        output.findings(raw(items), "hello")


def test_valid_findings_are_accepted():
    assert len(output.findings(raw([FINDING, FINDING]), "hé")) == 2
    assert output.findings(msgspec.Raw(b"[]"), "") == []


@pytest.mark.parametrize("depth", [40, 100_000])
def test_deep_data_is_refused(depth):
    text = '[{"kind":"k","span":{"start":0,"end":1},"data":' + '{"a":' * depth + "1" + "}" * depth
    with pytest.raises(output.BadOutput):
        output.findings(msgspec.Raw((text + "}]").encode()), "hello")


BAD_EXTRACTS = {
    "no value": [{"kind": "url"}],
    "no url": [{"kind": "url", "value_json": {"title": "x"}}],
    "script": [{"kind": "url", "value_json": {"url": "javascript:alert(1)"}}],
    "too large": [{"kind": "k", "value_json": {"a": "x" * 16_400}}],
    "empty dedupe key": [{"kind": "k", "value_json": {}, "dedupe_key": ""}],
    "long dedupe key": [{"kind": "k", "value_json": {}, "dedupe_key": "d" * 501}],
}


@pytest.mark.parametrize("items", BAD_EXTRACTS.values(), ids=BAD_EXTRACTS)
def test_invalid_extracts_are_refused_as_a_whole(items):
    with pytest.raises(output.BadOutput):
        output.extracts(raw(items), "msg_1")


def test_extracts_become_attachment_commands():
    value = {"b": 1, "a": 2}
    [(command, key)] = output.extracts(raw([{"kind": "k", "value_json": value}]), "msg_1")
    assert command == hub_wire.AddAttachment("k", value, None, None, "msg_1")
    assert key == attachments.dedupe_key({"a": 2, "b": 1})
