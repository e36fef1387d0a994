"""One word for one thing: identifiers use the field's terms.

The glossary (`docs/reference/glossary.md`) has the words to use. Names that clients see (JSON
fields, paths, settings of a specification) are not our identifiers and are exempt by name.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.size import GENERATED
from tests.contract.test_walls import ROOT, tracked

WORDS = {
    "house": "name what the fixture is: BrokerFixture, store",
    "scene": "name what the fixture is",
    "ledger": "name what it records",
    "bell": "name the fake: FakeBroker",
    "desk": "client or destination",
    "crew": "pool",
    "taker": "consumer",
    "seat": "subscription",
    "seats": "subscriptions",
    "lane": "queue",
    "lanes": "ready queue",
    "twins": "same_id_items",
    "tally": "stats",
    "ring": "stream",
    "rings": "streams",
    "storey": "layer",
    "roof": "composition root",
    "bury": "dead-letter, or reap a process",
    "buried": "dead-lettered",
    "calm": "backoff or circuit breaker",
    "agenda": "pending messages",
    "hungry": "with_demand",
    "sift": "filter",
    "told": "published, reported, outcome",
    "said": "parsed, output, message",
    "heard": "received",
    "hears": "receives",
    "places": "destinations or indexes",
}
NAMES = {
    "one": "the noun of what it holds",
    "most": "limit",
    "found": "row, match, finding",
    "place": "index, position or destination",
    "look": "check, read, refresh",
    "looked": "checked",
}
EXEMPT = {
    "appliance/broker/resources.py": {"place"},  # a parameter of a frozen path
    "appliance/inbox/hooks/wire.py": {"said_bytes"},  # a field of a frozen response
    "appliance/inbox/hooks/writes.py": {"said_bytes"},
}


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of everything that a module names itself; names of tests are sentences."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if not node.name.startswith("test_"):
                yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def words_of(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


def retired(name: str) -> str | None:
    """The advice for a name with a retired word."""
    if name in NAMES:
        return f"{name}: {NAMES[name]}"
    return next((f"{word}: {WORDS[word]}" for word in words_of(name) if word in WORDS), None)


def retired_in(file: Path) -> list[str]:
    text = file.read_text(encoding="utf-8")
    if text.startswith(GENERATED):  # its names are columns
        return []
    tree = ast.parse(text)
    where = file.relative_to(ROOT)
    return [
        f"{where}:{line}: {name} ({advice})"
        for line, name in identifiers(tree)
        if name not in EXEMPT.get(str(where), ()) and (advice := retired(name))
    ]


@pytest.mark.parametrize("folder", ["appliance", "doctor", "ops", "spark", "tests"])
def test_no_identifier_has_a_retired_word(folder):
    assert [problem for file in tracked(f"{folder}/*.py") for problem in retired_in(file)] == []


def test_no_module_has_a_retired_name():
    stems = {str(file.relative_to(ROOT)): file.stem for file in tracked("*.py")}
    assert {path for path, stem in stems.items() if set(words_of(stem)) & set(WORDS)} == set()
