"""What other programs rely on only ever gains: CLI --json, HTTP, events, frames, error codes."""

import pytest

from tests.contract import freeze
from tests.support import command_outputs
from tests.support.json_shapes import (
    broken_answer,
    broken_question,
    of_values,
)
from tests.support.servedhub import serve

PARTS = ("cli", "http", "events", "errors")


@pytest.fixture(scope="module")
def now(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("hub")) as hub:
        return freeze.everything_now(hub)


@pytest.mark.parametrize("part", PARTS)
def test_frozen_shapes_are_unchanged(now, part):
    assert freeze.frozen(part), "there are promises"
    assert list(freeze.broken(part, freeze.frozen(part), now[part])) == []


@pytest.mark.parametrize("part", PARTS)
def test_additions_are_in_the_frozen_files(now, part):
    news = list(freeze.unfrozen(part, freeze.frozen(part), now[part]))
    assert news == [], "freeze them: python -m tests.contract.freeze"


def test_every_command_has_a_frozen_answer_or_a_reason():
    output = set(freeze.frozen("cli"))
    assert command_outputs.commands() == output | set(command_outputs.PRINTS_NO_JSON)
    assert output & set(command_outputs.PRINTS_NO_JSON) == set()


# -- the comparison itself ----------------------------------------------------------------------

ANSWER = of_values([{"id": "x", "at": None, "rows": [{"n": 1}]}])


@pytest.mark.parametrize(
    ("now", "problem"),
    [
        ({"id": "x", "at": None, "rows": [{"n": 1}]}, None),
        ({"id": "x", "at": None, "rows": [{"n": 1, "more": 2}], "new": True}, None),
        ({"at": None, "rows": [{"n": 1}]}, "$.id: is gone"),
        ({"id": None, "at": None, "rows": [{"n": 1}]}, "$.id: may be null now"),
        ({"id": "x", "at": None, "rows": [{"n": "1"}]}, "$.rows[].n: may be string now"),
        ({"id": "x", "at": None, "rows": [{"m": 1}]}, "$.rows[].n: is gone"),
    ],
)
def test_response_may_gain_fields_and_not_lose_any(now, problem):
    results = list(broken_answer(ANSWER, of_values([now]), "$"))
    assert results == ([problem] if problem else [])


TEXT = {"types": ["string"], "limits": {"maxLength": 10}}
MODE = {"types": ["string"], "enum": ["a", "b"]}


def question(needed=("id",), **fields):
    fields = {"id": TEXT, "mode": MODE} | fields
    return {"types": ["object"], "fields": fields, "required": list(needed)}


@pytest.mark.parametrize(
    ("now", "problem"),
    [
        (question(), None),
        (question(more=TEXT), None),
        (question(id={"types": ["null", "string"], "limits": {"maxLength": 20}}), None),
        (question(mode={**MODE, "enum": ["a", "b", "c"]}), None),
        (question(["id", "mode"]), "$.mode: is needed now"),
        (question(id={"types": ["integer"]}), "$.id: may not be string any more"),
        (question(id={**TEXT, "limits": {"maxLength": 9}}), "$.id: maxLength is smaller"),
        (question(id={**TEXT, "limits": {"pattern": "x"}}), "$.id: pattern is new"),
        (question(mode={**MODE, "enum": ["a"]}), "$.mode: takes fewer values"),
    ],
)  # fmt: skip
def test_request_may_accept_more_and_not_less(now, problem):
    results = list(broken_question(question(), now, "$"))
    assert results == ([problem] if problem else [])
