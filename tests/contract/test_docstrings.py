"""A function's docstring says what the function does, and begins with the verb."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.contract.test_walls import parsed, tracked

PRODUCT = ("appliance/*.py", "doctor/*.py", "ops/*.py", "spark/*.py", "setup.py")
NOT_A_VERB = re.compile(
    r"\W|\d"
    r"|(?:an?|the|this|one|all|each|every|another|no|nothing|everything|whole|newest|best|only"
    r"|how|why|where|when|whose|whether|if|like|as|at|by|for|from|in|inside|on|with|without"
    r"|after|before|once|never|also|true|false|none|unknown|unacked|ordered)\b"
    r"|(?!focus)\w+(?<!s)s\b",  # Returns, Seconds
    re.IGNORECASE,
)


def described_functions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Constructors describe only their arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name != "__init__":
            yield node.name, ast.get_docstring(node) or "Do"


@pytest.mark.parametrize(
    "text", ["How many", "Seconds until", "`a`: b", "(a, b)", "Returns it", "By name", "60 digits"]
)
def test_docstring_without_a_verb_is_caught(text: str) -> None:
    assert NOT_A_VERB.match(text)


@pytest.mark.parametrize("text", ["Return how", "Process it", "Pass it", "Focus it", "Back up"])
def test_docstring_with_a_verb_passes(text: str) -> None:
    assert not NOT_A_VERB.match(text)


def test_function_docstrings_begin_with_a_verb() -> None:
    wrong = [
        f"{file}: {name}: {text[:40]}"
        for file in tracked(*PRODUCT)
        for name, text in described_functions(parsed(file)) if NOT_A_VERB.match(text)
    ]  # fmt: skip
    assert wrong == []
