"""Fonts of PNG charts: missing scripts are reported, and fonts of the machine are used."""

import pytest

pytest.importorskip("matplotlib")

from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager, get_data_path

from appliance.export import chart_fonts, charts
from tests.unit.export.test_report_page import activity_report

FAMILY = "Noto Sans CJK Test"


@pytest.fixture
def without_other_fonts(monkeypatch):
    """As on a machine with no fonts but those of matplotlib."""
    own = get_data_path()
    fonts = [font for font in font_manager.fontManager.ttflist if font.fname.startswith(own)]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", fonts)
    font_manager.fontManager._findfont_cached.cache_clear()
    yield
    font_manager.fontManager._findfont_cached.cache_clear()


def add_font(folder, characters):
    """A real font in which each of the characters is a square."""
    pen = TTGlyphPen(None)
    pen.moveTo((100, 0))
    for point in ((100, 800), (900, 800), (900, 0)):
        pen.lineTo(point)
    pen.closePath()
    square = pen.glyph()
    names = [".notdef", *(f"u{ord(c):X}" for c in characters)]
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder(names)
    font.setupCharacterMap({ord(c): f"u{ord(c):X}" for c in characters})
    font.setupGlyf(dict.fromkeys(names, square))
    font.setupHorizontalMetrics(dict.fromkeys(names, (1000, 0)))
    font.setupHorizontalHeader(ascent=900, descent=-100)
    font.setupNameTable({"familyName": FAMILY, "styleName": "Regular"})
    font.setupOS2()
    font.setupPost()
    path = folder / "test.ttf"
    font.save(path)
    font_manager.fontManager.addfont(path)


@pytest.mark.parametrize(
    ("names", "packages"),
    [
        (["ann", "Ωmega", "Привет", "a\u200db\ufe0f c"], []),
        (["設計"], ["fonts-noto-cjk"]),
        (["봇", "ビルド"], ["fonts-noto-cjk"]),
        (["🚀", "設"], ["fonts-noto-cjk", "fonts-symbola"]),
        (["ภาษาไทย"], ["fonts-noto-core"]),
    ],
)
def test_scripts_without_a_font_are_reported_with_a_package(without_other_fonts, names, packages):
    problems = chart_fonts.choose(names).problems
    assert len(problems) == len(packages)
    for problem, package in zip(problems, packages, strict=True):
        assert f"apt-get install {package}" in problem


def test_a_font_of_the_machine_is_used_for_characters_that_others_lack(
    without_other_fonts, tmp_path
):
    report = activity_report("設計")
    before = charts.of_activity(report, "png")
    assert "CJK" in before.problems[0]
    add_font(tmp_path, "設計")
    assert chart_fonts.choose(["設計"]) == ([chart_fonts.BASE, FAMILY], [])
    after = charts.of_activity(report, "png")
    assert after.problems == []
    assert after.pictures["senders"] != before.pictures["senders"]


def test_svg_charts_keep_names_as_text_for_the_fonts_of_the_viewer(without_other_fonts):
    drawn = charts.of_activity(activity_report("設計 🚀"), "svg")
    assert drawn.problems == []
    assert "設計 🚀" in drawn.pictures["senders"].decode()
