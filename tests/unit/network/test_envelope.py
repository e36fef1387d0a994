"""Envelopes: the vectors of the contract, the order of the checks, and mutations."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.mesh.canonical import NotCanonical, canonical
from appliance.network import envelope
from appliance.network.encoding import of_base64
from appliance.network.envelope import Correspondence, open_envelope
from appliance.network.keys import AgentKey
from tests.unit.network import vectors

ALICE, BOB, EVE = AgentKey(vectors.ALICE_SEED), AgentKey(vectors.BOB_SEED), AgentKey(b"e" * 32)
NOW = vectors.TIMESTAMP_MS
PAYLOAD = json.loads(vectors.PLAINTEXT)
TO_BOB = Correspondence(ALICE, "alice", BOB.public, "bob")
OF_ALICE = Correspondence(BOB, "bob", ALICE.public, "alice")


def contact(name):
    return OF_ALICE if name == "alice" else None


def seal(version="2.1", **more):
    return TO_BOB.seal(PAYLOAD, vectors.MESSAGE_ID, NOW, version=version, **more)


def read(fields, name="bob", now_ms=NOW):
    body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return open_envelope(body, name, contact, now_ms)


def sign(fields, key=ALICE):
    """The envelope with a good signature over these fields."""
    return fields | {"signature": key.sign(envelope.signed_text(fields))}


def test_message_key_is_that_of_the_contract():
    secret = bytes.fromhex(vectors.SHARED_SECRET)
    for names in (("alice", "bob"), ("bob", "alice")):
        assert envelope.message_key(secret, *names).hex() == vectors.MESSAGE_KEY


def test_envelope_is_that_of_the_contract():
    sealed = seal("2.0", nonce=of_base64(vectors.NONCE))
    assert sealed["timestamp"] == vectors.TIMESTAMP
    assert sealed["payload"] == {"ciphertext": vectors.CIPHERTEXT, "nonce": vectors.NONCE}
    assert envelope.signed_text(sealed).decode() == vectors.CANONICAL
    assert sealed["signature"] == vectors.SIGNATURE


def test_envelope_of_the_contract_is_opened():
    message = read(json.loads(vectors.CANONICAL) | {"signature": vectors.SIGNATURE})
    assert message.payload == PAYLOAD
    assert (message.sender, message.message_id) == ("alice", vectors.MESSAGE_ID)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.7", "2.1.3"])
def test_every_minor_version_is_accepted(version):
    assert read(seal(version)).version == version


def test_additional_data_binds_all_fields_from_version_2_1():
    """The sender itself cannot reuse a ciphertext under other fields."""
    for version, refused in (("2.0", False), ("2.1", True)):
        fields = seal(version)
        moved = sign(fields | {"timestamp": "2026-02-17T12:00:01.000Z"})
        if refused:
            with pytest.raises(envelope.NotDecrypted):
                read(moved)
        else:
            assert read(moved).payload == PAYLOAD


def test_fields_that_are_unknown_are_signed():
    fields = sign(seal() | {"urgency": {"b": 1, "a": [2]}})
    assert read(fields).payload == PAYLOAD
    fields["urgency"] = {"b": 1, "a": [3]}
    with pytest.raises(envelope.EnvelopeNotSigned):
        read(fields)


SEALED = seal()
REFUSALS = [
    (b"[]", envelope.MalformedEnvelope),
    (b"{", envelope.MalformedEnvelope),
    (b"[" * 100_000, envelope.MalformedEnvelope),
    (b" " * 300_000, envelope.MalformedEnvelope),
    (SEALED | {"recipient": "carol"}, envelope.NotTheRecipient),
    ({}, envelope.NotTheRecipient),
    (SEALED | {"sender": "eve"}, envelope.SenderNotAContact),
    (SEALED | {"sender": ["alice"]}, envelope.SenderNotAContact),
    (sign({k: v for k, v in SEALED.items() if k != "messageId"}), envelope.MalformedEnvelope),
    (sign(SEALED | {"messageId": "1"}), envelope.MalformedEnvelope),
    (sign(SEALED | {"messageId": vectors.MESSAGE_ID[:-1] + "\n"}), envelope.MalformedEnvelope),
    (sign(SEALED | {"type": "group"}), envelope.MalformedEnvelope),
    (sign(SEALED | {"groupId": "g"}), envelope.MalformedEnvelope),
    (sign(SEALED | {"payload": {"text": "plain"}}), envelope.MalformedEnvelope),
    (sign(SEALED | {"version": "two"}), envelope.MalformedEnvelope),
    (sign(SEALED | {"version": "3.0"}), envelope.UnsupportedEnvelope),
    (sign(SEALED | {"timestamp": "yesterday"}), envelope.MalformedEnvelope),
    (sign(SEALED | {"timestamp": "2026-02-31T12:00:00Z"}), envelope.MalformedEnvelope),
    (sign(SEALED | {"timestamp": "2026-02-17T12:05:00.001Z"}), envelope.EnvelopeNotCurrent),
    (sign(SEALED | {"timestamp": "2026-02-17T11:54:59.999Z"}), envelope.EnvelopeNotCurrent),
    (sign(SEALED, EVE), envelope.EnvelopeNotSigned),
    (sign(SEALED | {"version": "2.0"}), envelope.NotDecrypted),
    (sign(SEALED | {"payload": SEALED["payload"] | {"nonce": "AAAA"}}), envelope.NotDecrypted),
]


@pytest.mark.parametrize(("fields", "refusal"), REFUSALS)
def test_refusal_names_the_first_failed_check(fields, refusal):
    with pytest.raises(refusal) as raised:
        read(fields)
    assert type(raised.value) is refusal


ORDER = [
    ({"recipient": "carol"}, envelope.NotTheRecipient),
    ({"sender": "eve"}, envelope.SenderNotAContact),
    ({"type": "group"}, envelope.MalformedEnvelope),
    ({"version": "3.0"}, envelope.UnsupportedEnvelope),
    ({"timestamp": "2020-01-01T00:00:00.000Z"}, envelope.EnvelopeNotCurrent),
    ({"signature": ALICE.sign(b"")}, envelope.EnvelopeNotSigned),
    ({"payload": {"ciphertext": "AAAA", "nonce": "AAAA"}}, envelope.NotDecrypted),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_checks_have_the_order_of_the_protocol(first):
    """With all defects from `first` on, the first one is named."""
    fields = dict(SEALED)
    for change, _ in ORDER[first:]:
        fields |= change
    if first == len(ORDER) - 1:
        fields = sign(fields)
    with pytest.raises(ORDER[first][1]) as raised:
        read(fields)
    assert type(raised.value) is ORDER[first][1]


def test_payload_that_is_not_an_object_is_refused():
    fields = TO_BOB.seal([1], vectors.MESSAGE_ID, NOW)
    with pytest.raises(envelope.NotDecrypted):
        read(fields)


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.dictionaries(st.text(), st.text()))))
def test_signed_text_of_strings_is_canonical(fields):
    try:
        expected = canonical({name: fields[name] for name in fields if name != "signature"})
    except NotCanonical:
        with pytest.raises(envelope.MalformedEnvelope):
            envelope.signed_text(fields)
    else:
        assert envelope.signed_text(fields) == expected


# -- mutations ---------------------------------------------------------------------------

FIELDS = st.sampled_from(
    [("version",), ("type",), ("messageId",), ("sender",), ("recipient",), ("timestamp",),
     ("payload", "ciphertext"), ("payload", "nonce"), ("signature",)]
)  # fmt: skip
CLASSES = st.one_of(
    st.characters(categories=["Lu", "Ll", "Nd"], max_codepoint=127),
    st.sampled_from("+/=-_.:TZ"),
    st.characters(categories=["Cc", "Zs"]),
    st.characters(min_codepoint=128),
    st.just(""),
)


@given(
    version=st.sampled_from(["2.0", "2.1"]), path=FIELDS, where=st.integers(0, 10_000),
    text=CLASSES, inserts=st.booleans(),
)  # fmt: skip
def test_changed_field_is_never_accepted(version, path, where, text, inserts):
    sealed = seal(version)
    fields = sealed | {"payload": dict(sealed["payload"])}
    holder = fields["payload"] if len(path) == 2 else fields
    value = holder[path[-1]]
    at = where % len(value)
    holder[path[-1]] = value[:at] + text + value[at + (not inserts) :]
    if fields != sealed:
        with pytest.raises(envelope.EnvelopeRefused):
            read(fields)
