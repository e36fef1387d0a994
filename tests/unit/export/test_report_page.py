"""The HTML report: its limit in bytes, its totals, and names that could be markup."""

import json
import re
from datetime import date, timedelta
from html.parser import HTMLParser

import pytest

from appliance.export import report_html, report_page
from appliance.export.errors import ReportTooLarge
from appliance.export.report_html import render
from tests.support.gold_tables import answered, did, died, ended, took, write, write_delivery

HOSTILE = (
    "</script><script>alert(1)</script>", "<!--<script>", "\u202eevil", "設計 🚀", "x" * 500,
    "{{data}}", "&amp; \" ' `", "]]>\u2028",
)  # fmt: skip


def parts(data: bytes) -> tuple[dict, str]:
    """The data and the rest of the page."""
    text = data.decode()
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert match is not None
    return json.loads(match[1]), text.replace(match[0], "")


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [
            value or "" for name, value in attributes if name in ("src", "href", "action", "style")
        ]


@pytest.fixture
def gold(tmp_path):
    days = {
        "2026-11-19": [did(name, n + 1, waits=[10.0] * n) for n, name in enumerate(HOSTILE)],
        "2026-11-21": [did("ann", 5, edits=2, channel=HOSTILE[0], channel_id="ch_2")],
    }
    write(tmp_path, days, {"2026-11-19": [answered(HOSTILE[0], "ann", [1.0, 60.0])]})
    write_delivery(
        tmp_path,
        {"2026-11-21": [took(HOSTILE[0], "accept_to_ack", [0.1, 2.0])]},
        {"2026-11-21": [ended(HOSTILE[0], 2, dead=1)]},
        {"2026-11-21": [died(HOSTILE[0], HOSTILE[1], 1)]},
    )
    return tmp_path


def test_page_has_all_sums_and_hostile_names_are_text(gold):
    page = report_page.build(gold, None, None, None)
    data, rest = parts(render(page))
    assert page.days_left_out == 0
    assert sum(row[4] for row in data["rows"]) == page.activity.total.messages == 41
    assert data["senders"][-1] == HOSTILE[0]
    assert data["dead_letters"] == [["2026-11-21", 0, 0, 1, []]]
    assert max(len(name) for name in data["senders"]) == 100
    tags = Tags(render(page).decode())
    assert tags.tags.count("script") == 2
    assert tags.addresses == []
    assert not {"img", "link", "iframe", "object", "base"} & set(tags.tags)
    assert "alert(1)</script>" not in rest
    assert "\u202e" not in rest
    assert "±1%" in rest


def test_policy_allows_only_the_script_and_the_styles_of_the_page(gold):
    text = render(report_page.build(gold, None, None, None)).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    for name, source in (("script", r"<script>(.*?)</script>"), ("style", r"<style>(.*?)</style>")):
        content = re.search(source, text, re.DOTALL)[1]
        assert f"{name}-src '{report_html._hash(content)}'" in policy


@pytest.fixture(scope="module")
def busy(tmp_path_factory):
    """60 days with 60 rows each, of names that are long in JSON."""
    folder = tmp_path_factory.mktemp("busy")
    days = {
        str(date(2026, 1, 1) + timedelta(days=day)): [
            did(f"{'<' * 150} sender {(n * 7 + day) % 300}", 1, waits=[n + 1.0, 10.0 * day + 1],
                channel_id=f"ch_{n % 9}", topic_id=f"topic_{n % 50}")
            for n in range(60)
        ]
        for day in range(60)
    }  # fmt: skip
    write(folder, days)
    return folder


@pytest.mark.parametrize("limit", [10**6, 150_000, 100_000])
def test_oldest_days_are_left_out_until_the_data_fit(busy, limit):
    page = report_page.build(busy, None, None, None)
    text = page.encode(limit)
    data, shown = json.loads(text), 60 - page.days_left_out
    assert len(text.encode()) <= limit
    assert (shown == 60) == (limit == 10**6)
    assert min(row[0] for row in data["rows"]) == page.shown_from
    assert max(row[0] for row in data["rows"]) == page.last == "2026-03-01"
    assert sum(row[4] for row in data["rows"]) == 60 * shown
    assert sum(sum(row[10][1::2]) for row in data["rows"]) == 120 * shown
    assert (
        f"{page.days_left_out} more days, from 2026-01-01" in render(page).decode() or shown == 60
    )


def test_names_above_limit_share_one_row(busy, monkeypatch):
    page = report_page.build(busy, "2026-01-31", "2026-01-31", None)
    assert max(row[3] for row in page.cube.rows()["rows"]) < len(page.names["senders"]) <= 100
    monkeypatch.setattr(report_page, "NAMES_MAX", 10)
    cut = report_page.build(busy, "2026-01-31", "2026-01-31", None)
    rows = cut.cube.rows()["rows"]
    assert {row[3] for row in rows} == {report_page.OTHERS, *range(10)}
    assert sum(row[4] for row in rows) == 60
    with pytest.raises(ReportTooLarge, match="one day"):
        page.encode(5000)
    monkeypatch.setattr(report_page, "CELLS_MAX", 100)
    whole = report_page.build(busy, None, None, None)
    assert sum(map(len, whole.cube.rows().values())) <= 100
    assert whole.shown_from > "2026-02-20"
