"""What needs no process: agenda, breaker, judging what is said, finding the source, built-ins."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.hub import attachments
from appliance.hub import wire as hub_wire
from appliance.hub.plugins import output, source
from appliance.hub.plugins.breaker import Breaker
from appliance.hub.plugins.builtin import references, urls
from appliance.hub.plugins.pending_messages import CREATED, DELETED, EDITED, Agenda
from appliance.hub.plugins.settings import PluginSettings
from appliance.hub.plugins.source import BadSource
from appliance.kernel.config import BadSettings, load
from appliance.settings import Settings

# -- agenda ------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.sampled_from([CREATED, EDITED, DELETED, "channel.created", "work", "again"]),
            st.sampled_from("abcde"),
            st.integers(0, 700),
        ),
        max_size=60,
    )
)
def test_the_mark_never_passes_what_is_not_done(steps):
    agenda, now, event_id = Agenda(0, 1000, 1000, 5000), 0, 0
    waiting = {}
    for what, message, passed in steps:
        now += passed
        if what == "work":
            for one in agenda.due(now, 2):
                agenda.done(one)
                waiting.pop(one)
        elif what == "again":
            agenda.again(message, now)
        else:
            event_id += 1
            agenda.note(event_id, what, message, now, now)
            if what in (CREATED, EDITED):
                waiting.setdefault(message, event_id)
            elif what == DELETED:
                waiting.pop(message, None)
        assert agenda.mark == min(waiting.values(), default=event_id + 1) - 1
        assert agenda.pending == len(waiting)
    assert set(agenda.due(now + 5000, 99)) == set(waiting)  # nothing is put off for ever


def test_old_edits_are_not_put_off():
    agenda = Agenda(0, 10, 1000, 5000)
    agenda.note(1, EDITED, "old", 1_000, 90_000)
    agenda.note(2, EDITED, "new", 89_900, 90_000)
    assert agenda.due(90_000, 9) == ["old"]


def test_a_clock_that_goes_back_keeps_nothing_waiting():
    agenda = Agenda(0, 10, 1000, 5000)
    agenda.note(1, EDITED, "a", 900_000, 900_000)
    assert agenda.due(100_000, 9) == ["a"]
    agenda.note(2, EDITED, "b", 900_000, 900_000)
    agenda.note(3, EDITED, "b", 900_000, 100_000)
    assert agenda.due(106_000, 9) == ["a", "b"]


def test_the_agenda_has_an_end():
    agenda = Agenda(0, 2, 0, 0)
    for number in (1, 2):
        assert agenda.has_room
        agenda.note(number, CREATED, f"m{number}", 0, 0)
    assert not agenda.has_room


# -- breaker -----------------------------------------------------------------------------------


def test_a_breaker_opens_after_failures_in_a_row_and_tries_again_later():
    breaker = Breaker(3, 30.0, 100.0)
    for _ in range(2):
        assert not breaker.failed(0.0)
    breaker.succeeded()
    assert [breaker.failed(0.0) for _ in range(3)] == [False, False, True]
    assert breaker.state(29.9) == "open"
    assert breaker.seconds_left(10.0) == 20.0
    assert breaker.state(30.0) == "half-open"
    assert breaker.failed(30.0)
    assert breaker.state(89.0) == "open"  # twice as long
    assert breaker.failed(90.0)
    assert breaker.state(189.0) == "open"  # and no longer than that
    assert breaker.state(190.0) == "half-open"
    breaker.succeeded()
    assert breaker.state(190.0) == "closed"
    assert not breaker.failed(190.0)


def test_what_can_not_even_start_pauses_at_once():
    breaker = Breaker(3, 30.0, 100.0)
    assert breaker.failed(0.0, at_once=True)
    assert breaker.state(1.0) == "open"


# -- what is said ------------------------------------------------------------------------------


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
    "too many": [FINDING] * 6,
    "one of many": [FINDING, {**FINDING, "span": {"start": 4, "end": 9}}],
}


@pytest.mark.parametrize("said", BAD_FINDINGS.values(), ids=BAD_FINDINGS)
def test_unfit_findings_are_refused_whole(said):
    with pytest.raises(output.BadOutput):
        output.findings(raw(said), "hello", 5)


def test_fit_findings_pass():
    assert len(output.findings(raw([FINDING, FINDING]), "hé", 5)) == 2
    assert output.findings(msgspec.Raw(b"[]"), "", 5) == []


@pytest.mark.parametrize("depth", [40, 100_000])
def test_deep_data_is_refused(depth):
    text = '[{"kind":"k","span":{"start":0,"end":1},"data":' + '{"a":' * depth + "1" + "}" * depth
    with pytest.raises(output.BadOutput):
        output.findings(msgspec.Raw((text + "}]").encode()), "hello", 5)


BAD_EXTRACTS = {
    "no value": [{"kind": "url"}],
    "no url": [{"kind": "url", "value_json": {"title": "x"}}],
    "script": [{"kind": "url", "value_json": {"url": "javascript:alert(1)"}}],
    "too large": [{"kind": "k", "value_json": {"a": "x" * 16_400}}],
    "empty dedupe key": [{"kind": "k", "value_json": {}, "dedupe_key": ""}],
    "long dedupe key": [{"kind": "k", "value_json": {}, "dedupe_key": "d" * 501}],
}


@pytest.mark.parametrize("said", BAD_EXTRACTS.values(), ids=BAD_EXTRACTS)
def test_unfit_extracts_are_refused_whole(said):
    with pytest.raises(output.BadOutput):
        output.extracts(raw(said), "msg_1", 5)


def test_extracts_become_what_a_client_would_post():
    value = {"b": 1, "a": 2}
    [(command, key)] = output.extracts(raw([{"kind": "k", "value_json": value}]), "msg_1", 5)
    assert command == hub_wire.AddAttachment("k", value, None, None, "msg_1")
    assert key == attachments.dedupe_key({"a": 2, "b": 1})


# -- the source --------------------------------------------------------------------------------


@pytest.fixture
def workspace(tmp_path):
    root = tmp_path / "workspace"
    (root / "plugins").mkdir(parents=True)
    (root / ".agentlip").mkdir()
    (root / "plugins" / "good.py").write_text("# good")
    (root / ".agentlip" / "evil.py").write_text("# evil")
    (tmp_path / "outside.py").write_text("# outside")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "far.py").write_text("# far")
    return root


def text_of(workspace, module):
    return source.read(PluginSettings("p", "linkifier", module=module), workspace, 1000).text


def test_a_module_below_the_workspace_is_read(workspace):
    assert text_of(workspace, "plugins/good.py") == "# good"
    (workspace / "link.py").symlink_to("plugins/good.py")
    (workspace / "folder").symlink_to("plugins")
    assert text_of(workspace, "link.py") == text_of(workspace, "folder/good.py") == "# good"


def test_a_workspace_that_is_a_link_itself_is_no_obstacle(workspace, tmp_path):
    (tmp_path / "door").symlink_to(workspace)
    assert text_of(tmp_path / "door", "plugins/good.py") == "# good"


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("out.py", "../outside.py"),
        ("out.py", "/etc/hostname"),
        ("out.py", ".agentlip/evil.py"),
        ("out.py", "nowhere.py"),
        ("out.py", "out.py"),
        ("way/far.py", "../elsewhere"),
    ],
)
def test_no_link_leads_out(workspace, name, target):
    first = name.partition("/")[0]
    (workspace / first).symlink_to(target)
    with pytest.raises(BadSource):
        text_of(workspace, name)


@pytest.mark.parametrize(
    "module",
    ["../outside.py", "/etc/hostname", "plugins/../../outside.py", ".agentlip/evil.py", "plugins",
     "plugins/none.py", "", ".", "plugins/good.py/x.py", "a\0b.py", "p" * 5000 + ".py",
     "plugins/../.agentlip/evil.py"],
)  # fmt: skip
def test_what_is_no_module_of_the_workspace_is_refused(workspace, module):
    with pytest.raises(BadSource):
        text_of(workspace, module)


def test_no_device_pipe_or_giant_is_read(workspace):
    os.mkfifo(workspace / "pipe.py")
    (workspace / "big.py").write_text("#" * 1001)
    (workspace / "latin.py").write_bytes(b"# \xff")
    for name in ("pipe.py", "big.py", "latin.py"):
        with pytest.raises(BadSource):
            text_of(workspace, name)


def test_a_plugin_needs_one_source(workspace):
    for own in (
        PluginSettings("p", "linkifier"),
        PluginSettings("p", "linkifier", builtin="urls", module="plugins/good.py"),
    ):
        with pytest.raises(BadSource):
            source.read(own, workspace, 1000)


# -- built in ----------------------------------------------------------------------------------


def extracted(text, **config):
    return [one["value_json"]["url"] for one in urls.extract({"content_raw": text}, config)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://example.com/a.", ["https://example.com/a"]),
        ("(https://example.com/a)", ["https://example.com/a"]),
        ("https://en.example.org/wiki/A_(b), and", ["https://en.example.org/wiki/A_(b)"]),
        ("[x](https://example.com/a?b=1#c)!", ["https://example.com/a?b=1#c"]),
        ("<https://example.com>", ["https://example.com"]),
        ("HTTP://Example.com/ http://example.com", ["HTTP://Example.com/"]),
        ("http://a.example:80/ http://a.example/", ["http://a.example:80/"]),
        ("http://[::1]:8080/x", ["http://[::1]:8080/x"]),
        ("https://user:secret@example.com/ ftp://example.com javascript:alert(1)", []),
        ("https:// http://[bad https://", []),
        ("https://example.com:99999/ https://", []),
        ("https://example.com/" + "a" * 2100, []),
    ],
)
def test_addresses_are_found(text, found):
    assert extracted(text) == found


def test_allowed_and_blocked_domains_hold_for_those_below_too():
    text = "https://a.example.com https://example.com https://notexample.com https://b.example.com"
    assert extracted(text, allow_domains=["example.com"], block_domains=["b.example.com"]) == [
        "https://a.example.com",
        "https://example.com",
    ]
    assert extracted("https://EXAMPLE.com./", block_domains=["example.com"]) == []
    with pytest.raises(ValueError, match="allow_domains"):
        extracted("", allow_domains="example.com")


def test_what_the_url_extractor_finds_may_be_stored():
    text = "http://e.com/%zz http://ä.example/ü https://x.example/" + "y" * 1000 + " http://e.com"
    found = urls.extract({"content_raw": text}, {})
    assert len(output.extracts(raw(found), "msg_1", 100)) == len(found) == 4


@given(st.text(alphabet="htps:/.@[]()ae1 \n", max_size=80))
def test_the_url_extractor_survives_any_text_and_says_nothing_unfit(text):
    for content in (text, "https://" + text):
        found = urls.extract({"content_raw": content}, {})
        output.extracts(raw(found), "msg_1", 100)


def referred(text, **config):
    found = references.enrich({"content_raw": text}, config)
    for one in found:
        span = one["span"]
        assert one["data"]["path"] in text[span["start"] : span["end"]]
    return [(one["kind"], one["data"]) for one in found]


@pytest.mark.parametrize(
    ("text", "found"),
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
def test_references_are_found(text, found):
    assert referred(text) == found


def test_references_become_links():
    url = "https://git.example.com/blob/main/{path}#L{line}"
    [(_, data)] = referred("./src/a b.py src/a.py:3", url=url)[-1:]
    assert data["url"] == "https://git.example.com/blob/main/src/a.py#L3"


@given(st.text(alphabet="ab./:#L1-_ ü\n", max_size=80))
def test_the_linkifier_survives_any_text_and_says_nothing_unfit(text):
    found = references.enrich({"content_raw": text}, {"url": "https://e.com/{path}#L{line}"})
    output.findings(raw(found), text, 100)


NASTY = {
    "steps": "a/" * 32_000,
    "dots": "a." * 32_000,
    "opening": "https://" + "(" * 65_000,
    "closing": "https://a/" + ")" * 65_000,
    "here": "./" * 30_000 + "a.py",
}


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY)
def test_built_ins_are_quick_with_nasty_texts(text):
    began = time.process_time()
    urls.extract({"content_raw": text}, {})
    references.enrich({"content_raw": text}, {})
    assert time.process_time() - began < 0.5


# -- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": "A B"}, "name"),
        ({"type": "poem"}, "type"),
        ({"builtin": "none"}, "builtin"),
        ({"modul": "x"}, "modul"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(wrong, said):
    own = {"name": "a", "type": "linkifier", "builtin": "urls", **wrong}
    with pytest.raises(BadSettings, match=said):
        load(Settings, None, {}, {"plugins.use": [own]})


# -- the page -----------------------------------------------------------------------------------


def test_every_setting_of_a_plugin_and_every_built_in_is_on_the_page():
    page = (Path(__file__).parents[4] / "docs" / "plugins.md").read_text(encoding="utf-8")
    fields = re.findall(r"(?m)^\| `(\w+)` \| [^|]* \| [^|]* \|$", page)
    assert set(PluginSettings.__struct_fields__) <= set(fields)
    files = {path.stem for path in source.BUILTIN.glob("[a-z]*.py")}
    assert set(re.findall(r"(?m)^\| `(\w+)` \| (?:extractor|linkifier)", page)) == files
    kinds = msgspec.structs.fields(PluginSettings)
    [builtin] = [field.type for field in kinds if field.name == "builtin"]
    assert {name for one in get_args(builtin) for name in get_args(one)} == files


@pytest.mark.parametrize("name", ["urls", "references"])
def test_a_built_in_is_a_file_that_needs_nothing_of_ours(name, tmp_path):
    """As a batch job elsewhere would be given it."""
    shutil.copy(source.BUILTIN / f"{name}.py", tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {name};"
        " assert not [one for one in sys.modules if one.startswith('appliance')]"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
