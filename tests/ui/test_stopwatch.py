"""Ten tasks of a working day by real clicks from the home page: three at most, without a terminal.

The page `use-the-ui.md` has the measured counts. Typing does not count.
"""

import json
import re
from pathlib import Path

import pytest

from tests.support.operated_workspace import fill_bus, fill_queues
from tests.support.servedhub import serve
from tests.support.uipage import SECONDS_MAX, ui_page
from tests.support.until import until

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs/how-to/use-the-ui.md"
CLICKS_MAX = 3
TOPICS = 400
AT = """(() => {
  const [selector, text] = ARGUMENTS;
  const e = [...document.querySelectorAll(selector)].find((each) =>
    !each.disabled && `${each.textContent}|${each.ariaLabel}`.includes(text));
  if (!e) return null;
  e.scrollIntoView({ block: 'center' });
  const { x, y, width, height } = e.getBoundingClientRect();
  const [left, top] = [x + Math.min(width, innerWidth) / 2, y + height / 2];
  return width && e.contains(document.elementFromPoint(left, top)) ? [left, top] : null;
})()"""


AIMED = "new Promise((done) => setTimeout(done, 200))"
DRAWN = "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 20)))"
MARK_GRACE = (
    "void [...document.querySelectorAll('tbody tr')]"
    ".find((each) => each.innerText.startsWith('grace')).classList.add('grace')"
)


class Person:
    """Uses mouse and keyboard. `clicks` counts the presses of the mouse since the home page."""

    def __init__(self, page):
        self.page, self.clicks = page, 0

    def go_home(self):
        self.page.tab.evaluate("void (location.hash = '#/')")
        self.page.has("main h1, main .list")
        self.clicks = 0

    def click(self, selector, text=""):
        script = AT.replace("ARGUMENTS", json.dumps([selector, text]))

        def stands_still():
            center = self.page.tab.evaluate(script)
            self.page.tab.evaluate(AIMED)  # sections that load later move it
            return center if center == self.page.tab.evaluate(script) else None

        center = until(stands_still, SECONDS_MAX, f"{selector} {text!r}")
        for kind in ("mousePressed", "mouseReleased"):
            self.page.tab.call(
                "Input.dispatchMouseEvent", type=kind, x=center[0], y=center[1],
                button="left", clickCount=1,
            )  # fmt: skip
        self.clicks += 1

    def type(self, text, *keys):
        self.page.tab.call("Input.insertText", text=text)
        self.page.tab.evaluate(DRAWN)
        self.page.press(*keys)


def find_message(person):
    person.click(".top nav a", "Search")
    person.click("#query")
    person.page.has("#query:focus")
    person.type("platypus", "Enter")
    person.click(".results a", "platypus")
    person.page.sees("platypus from last week", ".list")


def answer_question(person):
    person.click(".top nav a", "Waiting for you")
    person.click(".ask button", "yes")
    person.page.has(".asked")


def see_why_a_job_failed(person):
    person.click(".top nav a", "Operate")
    person.click("section[aria-label='Jobs'] a", "nightly")
    person.page.sees("the disk is full", ".runs .output")


def rerun_job(person):
    person.click(".top nav a", "Operate")
    person.click("section[aria-label='Jobs'] button", "Run now")
    person.click("dialog .buttons button", "Run now")
    person.page.sees("was requested", ".notice")


def redrive_dead_letter(person):
    person.click(".top nav a", "Operate")
    person.click("section[aria-label='Queues'] button", "Redrive")
    person.click("dialog .buttons button", "Redrive")
    person.page.sees("2 envelopes are ready again", ".notice")


def invite_person(person):
    person.click(".top nav a", "Operate")
    person.click(".tabs a", "People")
    person.click(".bar button", "Invite")
    person.page.has("dialog input:focus")
    person.type("grace", "Enter")
    person.page.sees("#invite=", "dialog pre")
    clicks = person.clicks
    person.click("dialog .buttons button", "Done")
    person.clicks = clicks  # the link is there


def revoke_person(person):
    person.click(".top nav a", "Operate")
    person.click(".tabs a", "People")
    person.page.sees("grace", "tbody")
    person.page.tab.evaluate(MARK_GRACE)
    person.click("tr.grace .acts button", "Revoke")
    person.page.has("dialog input:focus")
    person.type("grace", "Enter")
    person.page.sees("is revoked", ".notice")


def back_up(person):
    person.click(".top nav a", "Operate")
    person.click(".bar .acts button", "Back up now")
    person.click("dialog .buttons button", "Back up now")
    person.page.sees("A backup is being made", ".notice")


def see_who_claimed_what(person):
    person.click(".top nav a", "Operate")
    person.click(".tabs a", "Workers")
    person.page.sees("path:src/lexer", ".board")


def move_among_many(person):
    person.page.press("/")
    person.page.has("#query:focus")
    person.type("wandering", "Enter")
    person.click(".results a", "wandering")
    person.page.has(".message.selected")
    person.page.press("m")
    person.page.sees("1 message moves", "dialog")
    until(lambda: is_reached(person.page), SECONDS_MAX, "the field of the topic")
    person.page.press(*person.target)
    person.click("dialog .buttons button", "Move")
    person.page.sees(f"to “{person.target}”", ".notice")


def is_reached(page):
    page.press("Tab")
    return page.count("dialog select:focus")


TASKS = {
    "Find last week's message": find_message,
    "Answer a question": answer_question,
    "See why a job failed": see_why_a_job_failed,
    "Run the job again": rerun_job,
    "Redrive dead letters": redrive_dead_letter,
    "Invite a person": invite_person,
    "Revoke a person": revoke_person,
    "Back up": back_up,
    "See who claimed what": see_who_claimed_what,
    "Move a message among 400 topics": move_among_many,
}
ON_A_PHONE = 5


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ui")
    with serve(folder, settings="[backup]\nenabled = false\n") as hub:
        spec = {"command": ["sh", "-c", "echo the disk is full; exit 3"]}
        hub.http("PUT", "/api/v1/jobs/nightly", spec)
        yield hub


@pytest.fixture
def day(hub, request):
    """Prepare what each task needs."""
    run = hub.made(hub.http.post("/api/v1/jobs/nightly/runs", {}))["run"]["id"]
    assert hub.http.get(f"/api/v1/jobs/runs/{run}?wait=30").body["run"]["state"] == "failed"
    fill_queues(hub, request.node.name[:20])  # known ids are not enqueued again
    question = {"text": "Deploy?", "sender": "ci", "choices": ["yes"], "deadline_seconds": 600}
    hub.made(hub.http.post("/api/v1/asks", question))
    return hub


def prepare(hub):
    """A workspace with four hundred topics, claims, and a message from last week's talk."""
    channel_id = hub.channel("many")
    topics = [hub.topic(channel_id, f"topic-{number:03}") for number in range(TOPICS)]
    hub.send(topics[7], "the wandering message")
    hub.send(topics[9], "the platypus from last week")
    wait_until_found(hub)
    fill_bus(hub)
    return "topic-399"


def wait_until_found(hub):
    until(lambda: hub.http.get("/api/v1/search?q=platypus").body["messages"], 20, "the index")


def measure(page, tasks, target):
    """Do each task from the home page, and return its clicks."""
    person, clicks = Person(page), {}
    person.target = target
    for name, task in tasks.items():
        person.go_home()
        task(person)
        clicks[name] = person.clicks
        page.lacks("dialog")
    return clicks


def documented():
    rows = re.findall(r"^\| ([A-Z][^|]+) \|[^|]*\| (\d) \|$", PAGE.read_text("utf-8"), re.M)
    return {name: int(count) for name, count in rows}


def test_each_task_takes_the_documented_clicks(day):
    target = prepare(day)
    with ui_page(day) as page:
        page.is_live()
        assert measure(page, TASKS, target) == documented()
        assert max(documented().values()) <= CLICKS_MAX


def test_first_tasks_take_as_many_clicks_on_a_phone(day):
    with ui_page(day) as page:
        page.tab.resize(400, 760)
        page.is_live()
        day.send(day.topic(day.channel("phone"), "t"), "the platypus from last week")
        wait_until_found(day)
        tasks = dict(list(TASKS.items())[:ON_A_PHONE])
        assert max(measure(page, tasks, "").values()) <= CLICKS_MAX
