"""The HTML report in a real browser: filters, names, colors, and no request to anywhere."""

import json

import pytest

from appliance.export import report_page
from appliance.export.report_html import render
from tests.support.axe import is_accessible
from tests.support.chromium import browser_page
from tests.support.gold_tables import answered, did, died, ended, took, write, write_delivery

pytestmark = pytest.mark.slow

NASTY = "<img src=x onerror=alert(1)>\u202e 設計 🚀"
OTHER = {"channel_id": "ch_2", "channel": "ops & co", "topic_id": "topic_2", "topic": NASTY}
HEAD = "document.querySelector"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    many = {f"2026-10-{day:02}": [did(f"agent {day}", day, **OTHER)] for day in range(1, 31)}
    write(
        folder,
        many
        | {
            "2026-11-19": [did("ann", 5, waits=[10.0, 20.0, 4000.0]), did(NASTY, 7, waits=[0.5])],
            "2026-11-21": [did("ann", 11, edits=2, **OTHER)],
        },
        {"2026-11-19": [answered(NASTY, "ann", [10.0, 20.0]), answered("ann", NASTY, [0.5])]},
    )
    write_delivery(
        folder,
        {"2026-11-19": [took(NASTY, "accept_to_ack", [0.1] * 9 + [30.0])],
         "2026-11-21": [took("mesh:north", "accept_to_ack", [0.2])]},
        {"2026-11-19": [ended(NASTY, 10, dead=1)], "2026-11-21": [ended("mesh:north", 1)]},
        {"2026-11-19": [died(NASTY, NASTY, 1)]},
    )  # fmt: skip
    file = folder / "report.html"
    file.write_bytes(render(report_page.build(folder, None, None, None)))
    with browser_page() as page:
        page.address = file.as_uri()
        yield page
        assert page.problems == []
        assert set(page.requests) == {page.address}


@pytest.fixture
def opened(page):
    page.resize(1200, 900)
    page.open(page.address)
    return page


def text(page, selector):
    return page.evaluate(f"{HEAD}({json.dumps(selector)}).textContent")


def cells(page, name, column):
    script = f"[...document.querySelectorAll('#{name} tbody tr')].map(r => r.cells[{column}])"
    return page.evaluate(f"{script}.map(cell => cell.textContent)")


def choose(page, name, value):
    """Select an option by its text, as its change event reports it."""
    page.evaluate(
        f"(() => {{ const s = {HEAD}('#{name}');"
        f" s.value = [...s.options].find(o => o.text === {json.dumps(value)}).value;"
        " s.dispatchEvent(new Event('change', { bubbles: true })); })()"
    )


def test_filters_change_the_numbers(opened):
    assert text(opened, "#status").endswith("2026-11-21: 488 messages")
    choose(opened, "sender", "ann")
    assert text(opened, "#status").endswith("sender ann: 16 messages")
    assert cells(opened, "channels", 1) == ["11", "5"]
    choose(opened, "channel", "general")
    assert text(opened, "#totals b") == "5"
    assert cells(opened, "senders", 6) == ["20.1 s"]
    assert cells(opened, "senders", 7) == ["1.1 h"]
    choose(opened, "sender", "All senders")
    choose(opened, "from", "2026-11-21")
    assert text(opened, "#totals b") == "0"
    assert "Nothing in this selection" in text(opened, "#pairs")
    assert cells(opened, "latency", 1) == ["mesh:north"]
    choose(opened, "to", "2026-10-02")
    assert opened.evaluate(f"{HEAD}('#from').selectedOptions[0].text") == "2026-10-02"
    opened.evaluate(f"{HEAD}('form button').click()")
    assert text(opened, "#status").endswith("488 messages")


def test_names_are_text(opened):
    assert opened.evaluate("document.querySelectorAll('img').length") == 0
    shown = NASTY.replace("\u202e", "\ufffd")
    assert shown in cells(opened, "dead_letters", 2)[0]


@pytest.mark.parametrize("width", [320, 1200])
def test_page_has_no_barriers_and_is_never_wider_than_the_window(opened, width):
    opened.resize(width, 800)
    is_accessible(opened, f"{width} pixels")
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
