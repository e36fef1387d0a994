"""The built-in `references` finds code references and file paths."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.hub.plugins import output
from appliance.hub.plugins.builtin import references


def raw(value):
    return msgspec.Raw(msgspec.json.encode(value))


def referred(text, **config):
    results = references.enrich({"content_raw": text}, config)
    for item in results:
        span = item["span"]
        assert item["data"]["path"] in text[span["start"] : span["end"]]
    return [(item["kind"], item["data"]) for item in results]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("look at src/app.py:12.", [("code_ref", {"path": "src/app.py", "line": 12})]),
        ("(app.py#L7-L9)", [("code_ref", {"path": "app.py", "line": 7, "end_line": 9})]),
        ("app.py:7-9", [("code_ref", {"path": "app.py", "line": 7, "end_line": 9})]),
        ("main.rs:10:5: error", [("code_ref", {"path": "main.rs", "line": 10})]),
        ("`docs/a-b/c_d.md`", [("file_path", {"path": "docs/a-b/c_d.md"})]),
        ("./x/y.weird ../z.py", [("file_path", {"path": "./x/y.weird"}),
                                 ("file_path", {"path": "../z.py"})]),
        ("example.com e.g. 1.5 v2.0 https://example.com/a.py a/b", []),
    ],
)  # fmt: skip
def test_references_are_found(text, expected):
    assert referred(text) == expected


def test_references_become_links():
    url = "https://git.example.com/blob/main/{path}#L{line}"
    [(_, data)] = referred("./src/a b.py src/a.py:3", url=url)[-1:]
    assert data["url"] == "https://git.example.com/blob/main/src/a.py#L3"


@given(st.text(alphabet="ab./:#L1-_ ü\n", max_size=80))
def test_linkifier_returns_valid_output_for_any_text(text):
    results = references.enrich({"content_raw": text}, {"url": "https://e.com/{path}#L{line}"})
    output.findings(raw(results), text)
