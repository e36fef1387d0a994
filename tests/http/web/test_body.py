"""Bodies, queries and keys at their limits; test_app_every_route has every field of every route."""

import json
import tracemalloc
from contextlib import nullcontext
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.kernel.errors import Invalid
from appliance.web.body import BodyPlan, QueryPlan, check_values
from tests.support.notes_resource import (
    JSON,
    Note,
    NoteResource,
    assert_failure,
    client,
    post,
)

# --- bodies -----------------------------------------------------------------


class Inner(msgspec.Struct):
    state: Literal["open", "shut"] = "open"
    sizes: list[Literal[1, 2]] = []


class Outer(msgspec.Struct, rename="camel"):
    inner_list: list[Inner] = []
    one_of: Inner | Literal["later"] | None = None


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        (b'{"innerList":[{},{"state":"opne"}]}', "one of: open, shut"),
        (b'{"innerList":[{"sizes":[1,3]}]}', "one of: 1, 2"),
        (b'{"oneOf":{"state":"opne"}}', "one of: open, shut"),
        (b'{"oneOf":"never"}', "one of: later"),
        (b'"\\ud800"', "send JSON in UTF-8 (RFC 8259), without lone surrogates such as \\ud800"),
    ],
)
def test_refused_value_gets_a_hint_that_names_what_is_allowed(body: bytes, hint: str) -> None:
    with pytest.raises(Invalid) as raised:
        BodyPlan(Outer, MIB).decode(body)
    assert raised.value.hint == hint


def test_query_value_besides_the_choices_is_refused_with_their_list() -> None:
    with pytest.raises(Invalid) as raised:
        QueryPlan(Inner).parse("state=opne")
    assert raised.value.hint == "one of: open, shut"


@pytest.mark.parametrize("declared", [513 * 1024, 10**17])
def test_declared_oversize_is_refused_before_reading(resource: NoteResource, declared: int) -> None:
    result = post(client(resource), b"{}", headers={**JSON, "Content-Length": str(declared)})
    shown = assert_failure(result, 400, "PAYLOAD_TOO_LARGE")
    assert shown["details"] == {"bytes_max": 512 * 1024}


def test_body_shorter_than_declared_is_refused(resource: NoteResource) -> None:
    result = post(client(resource), b'{"text":"x"}', headers={**JSON, "Content-Length": "40"})
    assert_failure(result, 400, "INVALID_INPUT")


def test_oversize_without_length_is_refused_while_reading(
    resource: NoteResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.web.app.BODY_BYTES_MAX", 100)
    for size, status in ((80, 201), (101, 400)):
        body = b'{"text":"' + b"x" * (size - 11) + b'"}'
        result = client(resource).simulate_post(
            "/notes",
            body=body,
            headers={**JSON, "Transfer-Encoding": "chunked"},
            extras={"CONTENT_LENGTH": ""},
        )
        assert result.status_code == status, result.text


def test_batch_may_be_larger_than_a_body(
    resource: NoteResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.web.app.BODY_BYTES_MAX", 50)
    monkeypatch.setattr("appliance.web.app.BATCH_BYTES_MAX", 1000)
    note = {"text": "x" * 100}
    door = client(resource)
    assert post(door, {"notes": [note]}, "/batch").json == {"count": 1}
    assert_failure(post(door, note), 400, "PAYLOAD_TOO_LARGE")
    assert_failure(post(door, {"notes": [note] * 10}, "/batch"), 400, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize(
    "given", ["application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"']
)
def test_charset_utf8_is_json_too(resource: NoteResource, given: str) -> None:
    result = post(client(resource), {"text": "x"}, headers={"Content-Type": given})
    assert result.status_code == 201


# --- query, path, key ---------------------------------------------------------


@pytest.mark.parametrize("number", ["9" * 19, str(2**63), "-" + "9" * 5000, "1.5", "one", ""])
def test_only_numbers_within_64_bits_are_accepted(resource: NoteResource, number: str) -> None:
    result = client(resource).simulate_get("/notes", query_string=f"after={number}")
    assert_failure(result, 400, "INVALID_INPUT")


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("abc", "abc"),
        ('"abc"', "abc"),
        ('"a b"', "a b"),
        ('"a\\"b\\\\"', 'a"b\\'),
        ("x" * 255, "x" * 255),
    ],
)
def test_idempotency_key_forms(resource: NoteResource, header: str, key: str) -> None:
    result = post(client(resource), {"text": "x"}, headers={**JSON, "Idempotency-Key": header})
    assert result.json["key"] == key


# --- large bodies ---------------------------------------------------------------

VALUES = st.recursive(
    st.sampled_from([0, -1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**25, 1.5e300, 12e-300])
    | st.sampled_from(["", "\0", "\\u0000", "\\", '"', '\\"', "9" * 19, '"' + "9" * 30, "a\\\0"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab"), inner),
)


def wrong_values(value: Any) -> list[Any]:
    values = [value]
    for each in values:
        values += (
            each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
        )
    text = [each for each in values if isinstance(each, str) and "\0" in each]
    return text + [n for n in values if isinstance(n, int) and not -(2**63) <= n < 2**63]


@given(VALUES)
@example([1e-300, 9223372036854775807.5, "\\\\\0"])
@example(["\\\\u0000", "9" * 30, 2**63])
def test_exactly_the_wrong_values_are_found(value: Any) -> None:
    with pytest.raises(Invalid) if wrong_values(value) else nullcontext():
        check_values(json.dumps(value).encode())


class Limited(msgspec.Struct, frozen=True):
    notes: Annotated[list[Note], msgspec.Meta(max_length=500)]


class Free(msgspec.Struct, frozen=True):
    value: dict[str, Any]


MIB = 1024 * 1024
MANY = "more than 1048576 brackets"
LONG = b'["a text of ordinary length"],'
LARGE = {
    "too many values": (b'{"value":{"a":[', b"[],", b"0]}}", MANY),
    "too many strings": (b'{"value":{"a":["\\\\",', b'"",', b"0]}}", MANY),
    "a text of brackets": (b'{"value":{"a":"', b'[\\"{,', b'"}}', None),
    "a backslash before u0000": (b'{"notes":[],"y":[', LONG, b'"\\\\u0000"]}', None),
    "NUL": (b'{"notes":[],"y":[', LONG, b'"\\u0000"]}', "y: text must not contain NUL"),
    "too many items": (b'{"notes":[', b"0,", b"0]}", MANY),
}


@pytest.mark.parametrize("name", LARGE)
def test_checking_a_large_body_takes_no_more_memory_than_a_few_copies(name: str) -> None:
    head, unit, tail, problem = LARGE[name]
    raw = head + unit * (4 * MIB // len(unit)) + tail
    free = b"value" in head
    plan = BodyPlan(Free, 8 * MIB) if free else BodyPlan(Limited, 8 * MIB, "notes")
    tracemalloc.start()
    try:
        with pytest.raises(Invalid, match=problem) if problem else nullcontext():
            plan.decode(raw)
        # Four of them are claimed before it is decoded, and not used.
        assert tracemalloc.get_traced_memory()[1] < 4.1 * len(raw)
    finally:
        tracemalloc.stop()
