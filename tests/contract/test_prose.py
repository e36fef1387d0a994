"""All texts that people read are plain English; `python -m tests.contract.prose` shows the rest."""

import pytest

from tests.contract import prose
from tests.contract.prose_rules import RULES, vocabulary
from tests.contract.prose_texts import texts
from tests.contract.test_walls import tracked

PYTHON = '''\
"""Says what it is for.

    an example that stands further right
"""
# One comment
# of two lines.
LIMIT = 10  # rows of a page


class Full(Exception):
    """It is full."""

    default_message = "queue full"
    default_hint = f"raise {LIMIT} in the settings"


def test_full_queue_refuses():
    raise Full("the queue is full", hint="wait")
    query("SELECT name FROM rows WHERE id = 1")
'''
MARKDOWN = """\
# A heading

A paragraph
of two lines, with `code is no prose`.

- an item
- another

| Head | Other |
|---|---|
| cell | `code` |

```sh
echo this is not prose
```
"""


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


def test_vocabulary_is_the_last_column_in_italics():
    table = "| Word | Instead of |\n|---|---|\n| cursor | *watermark*, mark |\n"
    assert [(rule.suggestion, rule.caught) for rule in vocabulary(table)] == [
        ("cursor", ("watermark",))
    ]


def names(text: str) -> set[str]:
    """Rules that find something in a paragraph."""
    return {hit.rule for hit in prose.hits([prose.Text("example.md", 1, "paragraph", text)])}


def test_python_texts_have_kinds_and_lines():
    results = [(text.line, text.kind, text.text) for text in texts("appliance/x.py", PYTHON)]
    assert sorted(results) == [
        (1, "docstring", "Says what it is for.\n\n"),
        (5, "comment", "One comment\nof two lines."),
        (7, "comment", "rows of a page"),
        (11, "docstring", "It is full."),
        (13, "string", "queue full"),
        (14, "string", "raise VALUE in the settings"),
        (17, "test", "full queue refuses"),
        (18, "string", "the queue is full"),
        (18, "string", "wait"),
    ]


def test_markdown_texts_have_kinds_and_lines():
    results = [(text.line, text.kind, text.text) for text in texts("docs/x.md", MARKDOWN)]
    assert results == [
        (1, "heading", "A heading"),
        (3, "paragraph", "A paragraph\nof two lines, with `code is no prose`."),
        (6, "paragraph", "an item"),
        (7, "paragraph", "another"),
        (9, "cell", "Head"),
        (9, "cell", "Other"),
        (11, "cell", "cell"),
        (11, "cell", "`code`"),
    ]


def test_long_paragraph_is_found_in_its_file_only():
    long = " ".join(["word"] * (prose.PARAGRAPH_WORDS_MAX + 1))
    kinds = [prose.Text("x.md", 1, kind, long) for kind in ("paragraph", "docstring")]
    assert [hit.rule for hit in prose.hits(kinds) if hit.rule == "long-paragraph"] == [
        "long-paragraph"
    ]
