"""The operator's views in a real browser, of a workspace in which things failed."""

import pytest

from tests.support.operated import fill_all
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
    page.sees("agentlip courier dlq list builds", ".detail")
    page.sees("builds-0", ".detail > pre")
    page.tab.evaluate("location.reload()")
    page.sees("builds-0", ".detail > pre")
    page.tab.evaluate("history.back()")
    page.lacks(".detail")


def test_sends_are_listed_by_status(page):
    operate(page, "sends")
    page.choose(".operate select", "dead")
    page.sees("#nobody", "tbody")
    page.click("tbody th a", "#nobody")
    page.sees("agentlip outbox redrive", ".detail .command")
    page.choose(".operate select", "pending")
    page.sees("No sends.")
    page.click(".facts a", "1")
    page.sees("dead", "tbody")


@pytest.mark.parametrize(
    ("view", "text"),
    [
        ("meshes", "lab"), ("links", "lab"), ("backups", "good"),
        ("webhooks", "https://hooks.example.com/in"),
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


def test_rates_are_drawn_from_what_the_process_keeps(hub, page):
    until(lambda: hub.http.get("/api/v1/rates").body["at_ms"], 30, "there is a sample")
    operate(page, "rates")
    page.sees("HTTP requests", ".charts")
    labels = page.tab.evaluate(
        "[...document.querySelectorAll('.charts svg[role=img]')].map((each) => each.ariaLabel)"
    )
    assert any("HTTP requests: now" in each for each in labels)
    assert any("Memory in use" in each for each in labels)
    page.sees("All zero since", "main")


def test_rows_are_sorted_by_the_keyboard_and_in_the_address(page):
    operate(page, "settings")
    page.tab.evaluate("document.querySelector('thead th:first-child button').focus()")
    page.press("Enter")
    page.has('thead th[aria-sort="ascending"]')
    page.press("Enter")
    page.has('thead th[aria-sort="descending"]')
    names = page.tab.evaluate(
        "[...document.querySelectorAll('tbody th')].map((each) => each.innerText)"
    )
    assert names == sorted(names, reverse=True)
    assert "sort=-Setting" in page.tab.evaluate("location.hash")


VISIBILITY = """
Object.defineProperty(document, 'hidden', { configurable: true, get: () => %s });
void document.dispatchEvent(new Event('visibilitychange'))
"""


def test_hidden_page_reads_nothing_until_it_is_visible_again(page):
    page.open()
    operate(page, "jobs")

    def count():
        page.tab.evaluate("new Promise((resolve) => requestAnimationFrame(resolve))")
        return len([each for each in page.tab.requests if each.endswith("/jobs")])

    # Timers as long as the one between two reads end after a hundredth of their time.
    page.tab.evaluate(
        "void (() => { const real = window.setTimeout;"
        " window.setTimeout = (work, delay) => real(work, delay >= 9e3 ? delay / 100 : delay); })()"
    )
    page.click(".operate button", "Read again")
    before = count()
    until(lambda: count() > before + 3, 20, "the view is read again and again")
    page.tab.evaluate(VISIBILITY % "true")
    page.tab.evaluate("new Promise((resolve) => setTimeout(resolve, 500))")  # one may be under way
    hidden = count()
    page.tab.evaluate("new Promise((resolve) => setTimeout(resolve, 1000))")
    assert count() == hidden
    page.tab.evaluate(VISIBILITY % "false")
    until(lambda: count() > hidden + 1, 20, "the view is read again")
    page.open()


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


def test_phone_shows_a_table_without_a_wide_page(page):
    page.tab.resize(400, 760)
    operate(page, "queues")
    page.has("tbody tr")
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= 400
    page.tab.resize(1280, 800)
