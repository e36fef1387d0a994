"""The documentation site: every page is in the navigation, and pictures load nothing."""

import re
from xml.etree import ElementTree

import pytest
import yaml

from ops.monitoring import dashboards
from tests.contract.test_walls import ROOT, tracked

DOCS = ROOT / "docs"


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without running what its tags name."""


Loader.add_multi_constructor("!!python/", lambda loader, suffix, node: suffix)
Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)
SITE = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


def pages(part: object) -> list[str]:
    if isinstance(part, str):
        return [part]
    children = part.values() if isinstance(part, dict) else part
    return [page for child in children for page in pages(child)]


def test_every_page_is_in_the_navigation_once():
    listed = pages(SITE["nav"])
    written = {file.relative_to(DOCS).as_posix() for file in tracked("docs/*.md")}
    listed_elsewhere = {
        page for page in written if re.match(r"decisions/\d{4}-|reference/checks/", page)
    }
    assert len(listed) == len(set(listed))
    assert set(listed) == written - listed_elsewhere


def test_theme_loads_no_font_and_no_diagram_script_from_elsewhere():
    assert SITE["theme"]["font"] is False
    assert not any("```mermaid" in file.read_text("utf-8") for file in tracked("docs/*.md"))


def test_pictures_have_titles_and_load_nothing():
    pictures = tracked("docs/*.svg")
    assert pictures
    for picture in pictures:
        text = picture.read_text(encoding="utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert "<title" in text
        assert "://" not in text
        assert "<script" not in text


@pytest.mark.parametrize("name", dashboards.CONTENT)
def test_dashboard_has_a_picture_of_its_panels(name):
    board = dashboards.CONTENT[name]
    page = (ROOT / "docs/reference/dashboards.md").read_text("utf-8")
    assert f"(../pictures/dashboard-{name}.svg)" in page
    picture = ElementTree.parse(ROOT / f"docs/pictures/dashboard-{name}.svg")
    texts = [each.text for each in picture.iterfind(".//{*}text[@font-size='12']")]
    assert texts == [panel["title"] for panel in board["panels"]], "just dashboard-pictures"


def test_index_of_guides_follows_the_navigation():
    """Each heading of the index is a group of the navigation, with links to its pages."""
    groups = {name: pages(part) for entry in SITE["nav"] for name, part in entry.items()}
    _, *parts = re.split(r"(?m)^## ", (DOCS / "how-to/index.md").read_text("utf-8"))
    listed = {}
    for heading, _, body in (part.partition("\n") for part in parts):
        links = re.findall(r"\]\(([^)]+)\)", body)
        listed[heading] = [(f"how-to/{link}").replace("how-to/../", "") for link in links]
    assert listed == {name: groups[name] for name in list(groups)[1:-2]}
