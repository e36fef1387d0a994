"""The web UI in a hostile world: its policy, its libraries, and text that looks like markup."""

import hashlib
import tomllib
from pathlib import Path

import pytest

from appliance.ui.resources import POLICY, UiFiles
from tests.support.chromium import browser_page
from tests.support.servedhub import serve

pytestmark = pytest.mark.slow

STATIC = Path(__file__).parents[2] / "appliance" / "ui" / "static"
WIRE_BYTES_MAX = 150_000
LINES_MAX = 3_000


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("ui")) as hub:
        yield hub


@pytest.mark.parametrize("path", ["/ui/", "/ui", "/ui/main.js", "/ui/vendor/preact.js"])
def test_every_file_has_the_policy_and_needs_no_token(hub, path):
    client = hub.connect(token=None)
    answer = client.get(path)
    assert answer.status == 200
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    again = client.get(path, headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status, again.raw) == (304, b"")
    client.close()


def test_policy_allows_no_inline_code_and_no_other_address():
    directives = dict(each.split(maxsplit=1) for each in POLICY.split("; "))
    assert directives["default-src"] == "'none'"
    assert directives["require-trusted-types-for"] == "'script'"
    assert not {"unsafe-inline", "unsafe-eval", "http:", "https:", "*"} & {
        source.strip("'") for text in directives.values() for source in text.split()
    }


def test_unknown_file_is_an_error_with_a_hint(hub):
    for path in ("/ui/none.js", "/ui/vendor/VENDOR.toml", "/ui/..%2Fwire.py"):
        answer = hub.http.get(path)
        assert answer.status in (400, 404), path
        assert answer.body["hint"]


def test_vendored_libraries_are_the_recorded_ones():
    folder = STATIC / "vendor"
    recorded = tomllib.loads((folder / "VENDOR.toml").read_text("utf-8"))["file"]
    assert {each["name"] for each in recorded} == {path.name for path in folder.glob("*.js")}
    licences = (folder / "licences.txt").read_text("utf-8")
    for each in recorded:
        text = (folder / each["name"]).read_text("utf-8")
        assert hashlib.sha256(text.encode()).hexdigest() == each["sha256"], each["name"]
        for before, after in each.get("replaced", {}).items():
            text = text.replace(after, before)
        assert hashlib.sha256(text.encode()).hexdigest() == each["source_sha256"], each["name"]
        assert f"{each['package']} {each['version']}" in licences


def test_whole_page_is_small():
    loaded = [file for path, file in UiFiles().by_path.items() if not path.endswith(".txt")]
    assert sum(len(file.compressed) for file in loaded) <= WIRE_BYTES_MAX
    own = [path for path in STATIC.iterdir() if path.suffix in (".js", ".css")]
    lines = {path.name: path.read_text("utf-8").count("\n") for path in own}
    assert sum(lines.values()) <= LINES_MAX, lines


def test_scripts_never_write_markup():
    for path in STATIC.glob("*.js"):
        text = path.read_text("utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text, path.name


def test_page_loads_nothing_from_elsewhere(hub):
    with browser_page() as page:
        page.open(f"{hub.url}/ui/")
        assert page.evaluate("document.querySelector('.brand').textContent") == "Agentlip"
        assert page.problems == []
        assert all(request.startswith(hub.url) for request in page.requests)
