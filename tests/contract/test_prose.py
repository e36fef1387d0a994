"""All texts that people read are plain English; `python -m tests.contract.prose` shows the rest."""

import pytest

from tests.contract import prose
from tests.contract.prose_rules import RULES, vocabulary
from tests.contract.test_walls import tracked


@pytest.mark.slow
def test_every_text_of_the_repository_is_plain_english():
    assert [str(hit) for hit in prose.findings(tracked())] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_catches_its_examples_and_passes_the_others(rule):
    assert [text for text in rule.caught if rule.name not in names(text)] == []
    assert [text for text in rule.passed if rule.name in names(text)] == []


def test_glossary_gives_a_rule_for_each_replaced_word():
    rules = list(vocabulary(prose.GLOSSARY.read_text(encoding="utf-8")))
    assert {"watermark", "taker"} <= {word for rule in rules for word in rule.caught}
    for rule in rules:
        assert "glossary" in names(f"the {rule.caught[0]} is there")
    assert "glossary" not in names("the `watermark` of a view")


def names(text: str) -> set[str]:
    """Rules that find something in a paragraph."""
    return {hit.rule for hit in prose.hits([prose.Text("example.md", 1, "paragraph", text)])}
