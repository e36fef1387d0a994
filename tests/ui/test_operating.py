"""The operator's views in a real browser, of a workspace in which things failed."""

import pytest

from tests.support.operated_workspace import RUN, fill_all
from tests.support.servedhub import serve
from tests.support.uipage import ui_page
from tests.support.until import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("ui"), settings="[hub]\nmax_retopic_batch = 900\n") as hub:
        fill_all(hub)
        yield hub


@pytest.fixture(scope="module")
def page(hub):
    with ui_page(hub) as page:
        yield page
        assert page.tab.problems == []


def operate(page, view, query=""):
    page.go(f"#/operate?view={view}{query}")
    page.has('.tabs [aria-current="page"]')
    page.sees("As of", ".operate")


def test_findings_have_the_command_that_helps(page):
    operate(page, "findings")
    page.sees("dead letters", ".findings")
    commands = page.tab.evaluate(
        "[...document.querySelectorAll('.findings .command')].map((each) => each.innerText)"
    )
    assert any("agentlip" in each for each in commands)
    assert "outbox.dead" in page.text(".findings")


def test_queues_show_dead_letters_and_open_to_them(hub, page):
    operate(page, "queues")
    page.sees("builds", "tbody")
    page.click("tbody th a", "builds")
    page.sees("builds-0", ".detail .trouble")
    page.tab.evaluate("location.reload()")
    page.sees("builds-0", ".detail .trouble")
    page.click(".detail .pills button", "ready")
    page.sees("builds-2", ".detail .trouble")
    page.tab.evaluate("history.back()")
    page.lacks(".detail")


def test_sends_are_listed_by_status(page):
    operate(page, "sends")
    page.choose(".operate select", "dead")
    page.sees("#nobody", "tbody")
    page.click("tbody th a", "#nobody")
    page.sees("Redrive", ".detail .acts")
    page.choose(".operate select", "pending")
    page.sees("No sends.")
    page.click(".facts a", "1")
    page.sees("dead", "tbody")


@pytest.mark.parametrize(
    ("view", "text"),
    [
        ("meshes", "lab"), ("links", "lab"), ("backups", "good"),
        ("webhooks", "https://hooks.example.com/…"),
        ("forecast", "workspace"), ("plugins", "urls"), ("audit", "/api/v1/webhooks"),
        ("jobs", "the bucket does not answer"),
    ],
)  # fmt: skip
def test_other_views_have_their_rows(page, view, text):
    operate(page, view)
    page.sees(text, "tbody")
    page.click("tbody th a")
    page.has(".detail dl dd")


def test_worker_that_is_stuck_says_why_and_what_helps(page):
    operate(page, "workers")
    page.sees("its process ended or hangs", ".stuck")
    assert "agentlip worker show linker" in page.text(".stuck")
    stuck = page.tab.evaluate(
        "[...document.querySelectorAll('.stuck > strong')].map((each) => each.innerText)"
    )
    assert stuck == ["linker", "docs", "ci"]
    page.sees("waits for a review", 'section[aria-label="In review: 1"]')


def test_view_of_a_role_that_is_off_and_of_a_missing_scope(tmp_path):
    with serve(tmp_path, settings="[roles]\ncourier = false\nhub = false\n") as hub:
        with ui_page(hub) as page:
            page.go("#/operate?view=queues")
            page.sees("The courier is switched off", "main")
            page.go("#/operate?view=backups")
            page.sees("No backups yet", "main")
        body = {"name": "guest", "scopes": ["jobs:read"]}
        guest = hub.made(hub.http.post("/api/v1/tokens", body))["token"]["id"]
        with ui_page(hub, signed_in=False) as page:
            page.sign_in(guest)
            page.go("#/operate?view=backups")
            page.sees("Your token may not see this", "main")
            page.sees("backup:read", "main")
            page.go("#/operate?view=jobs")
            page.sees("backup_scheduler", "main")


def test_jobs_count_their_failed_runs_until_they_succeed(tmp_path):
    (tmp_path / "jobs").mkdir()
    script = 'command = ["sh", "-c", "test -e fixed"]\n'
    (tmp_path / "jobs" / "nightly.toml").write_text(script)
    with serve(tmp_path) as hub, ui_page(hub) as page:
        for _ in range(3):
            run_job(hub, "nightly")
            hub.made(hub.http.post("/api/v1/jobs/runs", RUN))
        operate(page, "jobs")
        page.sees("nightly", "tbody")
        assert failures(page) == {"nightly": "3", "ingest": "3"}
        (tmp_path / "fixed").touch()
        run_job(hub, "nightly")
        hub.made(hub.http.post("/api/v1/jobs/runs", RUN | {"outcome": "ok", "exit_code": 0}))
        page.click("button", "Read again")
        until(lambda: failures(page) == {"nightly": "0", "ingest": "0"}, 20, "both succeeded")


def run_job(hub, name):
    run = hub.made(hub.http.post(f"/api/v1/jobs/{name}/runs", {}))["run"]["id"]
    ended = hub.http.get(f"/api/v1/jobs/runs/{run}?wait=30").body["run"]["state"]
    assert ended in {"failed", "succeeded"}


def failures(page):
    """Return the column Failures, without the appliance's loops."""
    rows = page.tab.evaluate(
        "[...document.querySelectorAll('tbody tr')].map((row) =>"
        " ['Job', 'Failures', 'Source'].map((title) => row.children[[...document"
        ".querySelectorAll('thead th')].findIndex((each) => each.innerText.includes(title))]"
        ".innerText))"
    )
    return {job: count for job, count, source in rows if source != "built-in"}


WIDE_JOB = """command = ["sh", "-c", "echo {text} >&2; exit 3"]
cron = "15 3 * * 1-5"
description = "{text}"
"""
OVERFLOWING = """
[...document.querySelectorAll('main, .scroll, .board')]
  .filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.className || each.id)
"""


def test_no_column_is_off_the_screen_of_a_laptop(tmp_path):
    (tmp_path / "jobs").mkdir()
    text = "compacts the tables of the warehouse and counts what is left in each of them"
    for name in ("compaction-of-the-warehouse", "b"):
        (tmp_path / "jobs" / f"{name}.toml").write_text(WIDE_JOB.format(text=text))
    with serve(tmp_path) as hub, ui_page(hub) as page:
        fill_all(hub)
        run_job(hub, "compaction-of-the-warehouse")
        run_job(hub, "b")
        assert hub.http.post("/api/v1/jobs/b/pause", {}).status == 200
        hub.made(hub.http.post("/api/v1/jobs/runs", RUN | {"error": text}))
        page.go("#/operate")
        page.has(".tabs")
        views = page.tab.evaluate("[...document.querySelectorAll('.tabs a')].map((e) => e.hash)")
        for address in views:
            page.go(address)
            page.has(f".tabs [aria-current='page'][href='{address}']")
            page.sees("As of", ".operate")
            assert page.tab.evaluate(OVERFLOWING) == [], address


def test_times_of_a_row_are_those_of_the_locale(hub, page):
    operate(page, "jobs")
    page.click("tbody th a", "ingest")
    page.has(".detail dl dd")
    shown = page.tab.evaluate(
        "[...document.querySelectorAll('.detail dd:not(:has(code))')].map((each) => each.innerText)"
    )
    assert not any("2026-02-01T08" in each for each in shown)
    assert "Feb 1, 2026" in page.text(".detail > dl")
