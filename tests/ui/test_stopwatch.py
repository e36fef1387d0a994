"""Ten tasks of a working day by real clicks from the home page: three at most, without a terminal.

The page `use-the-ui.md` has the measured counts. Typing is no click.
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
        found = until(lambda: self.page.tab.evaluate(script), SECONDS_MAX, f"{selector} {text!r}")
        for kind in ("mousePressed", "mouseReleased"):
            self.page.tab.call(
                "Input.dispatchMouseEvent", type=kind, x=found[0], y=found[1],
                button="left", clickCount=1,
            )  # fmt: skip
        self.clicks += 1

    def type(self, text, *keys):
        self.page.tab.call("Input.insertText", text=text)
        self.page.press(*keys)


def find_message(person):
    person.click(".top nav a", "Search")
    person.page.has("#query:focus, #query")
    person.page.tab.evaluate("document.getElementById('query').focus()")
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
    person.page.press("Escape")


def revoke_person(person):
    person.click(".top nav a", "Operate")
    person.click(".tabs a", "People")
    person.click("tr:has(a[href*='grace']) button, tr:has(th):nth-child(n) button", "Revoke")
    person.page.has("dialog input")


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
    person.page.choose("dialog select", person.target)
    person.click("dialog .buttons button", "Move")
    person.page.sees("Moved 1 message", ".notice")


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
        (folder / "jobs").mkdir()
        spec = {"command": ["sh", "-c", "echo the disk is full; exit 3"]}
        hub.http("PUT", "/api/v1/jobs/nightly", spec)
        yield hub


@pytest.fixture
def day(hub):
    """What each task needs, anew."""
    run = hub.made(hub.http.post("/api/v1/jobs/nightly/runs", {}))["run"]["id"]
    assert hub.http.get(f"/api/v1/jobs/runs/{run}?wait=30").body["run"]["state"] == "failed"
    fill_queues(hub)
    question = {"text": "Deploy?", "sender": "ci", "choices": ["yes"], "deadline_seconds": 600}
    hub.made(hub.http.post("/api/v1/asks", question))
    return hub
