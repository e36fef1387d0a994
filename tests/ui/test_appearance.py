"""Every screen has one type scale, spacing in multiples of four, and targets for fingers."""

import pytest

from tests.support.operated_workspace import fill_all
from tests.support.servedhub import serve
from tests.support.uipage import ui_page

pytestmark = pytest.mark.slow

SIZES = ["20px", "17px", "15px", "13px"]
PHONE = 400
SHOWN = """
const shown = [...document.querySelectorAll('#app *')].filter((each) =>
  each.checkVisibility() && !each.closest('svg, option, .heard'));
const nameOf = (each) => `${each.tagName}.${each.className} ${each.textContent.slice(0, 30)}`;
"""
OTHER_SIZES = f"""
(() => {{ {SHOWN}
  return [...new Set(shown.filter((each) => [...each.childNodes].some((node) =>
      node.nodeType === 3 && node.data.trim()) || each.matches('input, select, textarea'))
    .filter((each) => !{SIZES}.includes(getComputedStyle(each).fontSize))
    .map((each) => `${{getComputedStyle(each).fontSize}} ${{nameOf(each)}}`))]; }})()
"""
OTHER_SPACES = f"""
(() => {{ {SHOWN}
  const names = ['Top', 'Right', 'Bottom', 'Left'].flatMap((side) => [`padding${{side}}`,
    `margin${{side}}`]).concat('rowGap', 'columnGap');
  return [...new Set(shown.filter((each) => !each.matches('dialog')).flatMap((each) => names
    .filter((name) => (parseFloat(getComputedStyle(each)[name]) || 0) % 4)
    .map((name) => `${{name}} ${{getComputedStyle(each)[name]}} ${{nameOf(each)}}`)))]; }})()
"""
HIDDEN_AT_FIRST = """(() => {
  const box = (selector) => document.querySelector(selector).getBoundingClientRect();
  const hidden = [".top nav", ".tabs"].filter((row) => {
    const { left, right } = box(`${row} [aria-current]`);
    return left < 0 || right > innerWidth;
  });
  return box(".view h1").bottom < innerHeight / 2 ? hidden : ["h1", ...hidden];
})()"""
SMALL_TARGETS = f"""
(() => {{ {SHOWN}
  const isInText = (each) => getComputedStyle(each).display === 'inline';
  return [...new Set(shown.filter((each) => each.matches('a, button, select, textarea, summary,'
      + 'input:not([type=checkbox], [type=radio]), label.choice') && !isInText(each)
      && !each.matches('.skip'))
    .filter((each) => {{ const {{ width, height }} = each.getBoundingClientRect();
      return width < 43.9 || height < 43.9; }})
    .map((each) => {{ const {{ width, height }} = each.getBoundingClientRect();
      return `${{width}} by ${{height}} ${{nameOf(each)}}`; }}))]; }})()
"""
WIDTH_OF_75 = """
(() => { const text = document.querySelector('.list div.text > p');
  const probe = document.createElement('span');
  probe.textContent = text.textContent.slice(0, 75);
  probe.style.cssText = 'position: absolute; white-space: pre';
  text.append(probe);
  const { width } = probe.getBoundingClientRect();
  probe.remove();
  return text.getBoundingClientRect().width / width; })()
"""
WATCH_SHIFTS = """
window.shift = 0;
const add = (list) => list.getEntries().forEach((each) => { window.shift += each.value; });
new PerformanceObserver(add).observe({ type: 'layout-shift', buffered: false });
"""
TOPS = """
[...document.querySelectorAll('.list .message')].map((each) =>
  [each.querySelector('.text').innerText, Math.round(each.getBoundingClientRect().top)])
"""
FRAMES = """
new Promise((resolve) => { let count = 0;
  const next = () => (++count < 10 ? requestAnimationFrame(next) : resolve(count)); next(); })
"""
TEXTS = [
    "A **paragraph** of text. " * 30, "- one\n- two\n\n> quoted\n\n1. first", '{"a": [1, 2]}',
    "# Heading\n\n| a | b |\n|-|-|\n| 1 | 2 |",
    "- [ ] open `task`\n- [x] done\n\n```diff\n+ a\n- b\n```",
]  # fmt: skip


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("ui")) as hub:
        fill_all(hub)
        hub.channel_id, hub.topic_id = hub.channel_with_topic("appearance")
        hub.send_many(hub.topic_id, TEXTS)
        value = {"url": "https://example.com/", "title": "the run", "n": 1}
        path = f"/api/v1/topics/{hub.topic_id}/attachments"
        hub.made(hub.http.post(path, {"kind": "url", "value_json": value}))
        question = {"text": "Deploy?", "sender": "ci", "deadline_seconds": 600}
        for choices in (["yes", "no"], []):
            body = {**question, "choices": choices, "topic_id": hub.topic_id}
            hub.made(hub.http.post("/api/v1/asks", body))
        yield hub


@pytest.fixture
def page(hub):
    with ui_page(hub) as page:
        page.go("#/operate")
        page.has(".tabs a")
        views = page.tab.evaluate("[...document.querySelectorAll('.tabs a')].map((e) => e.hash)")
        page.addresses = [
            "#/", "#/asks", "#/search?q=paragraph", "#/events", "#/start", "#/sign-in",
            f"#/c/{hub.channel_id}", f"#/c/{hub.channel_id}/t/{hub.topic_id}", *views,
        ]  # fmt: skip
        yield page


def show(page, address):
    page.go(address)
    page.has("main :is(h1, .failure)")
    page.misses("Reading…", "main")
    page.tab.evaluate("void document.querySelector('tbody th a')?.click()")
    page.tab.evaluate(FRAMES)


def test_every_screen_keeps_the_type_scale_and_the_spacing(page):
    wrong = {}
    for address in page.addresses:
        show(page, address)
        problems = page.tab.evaluate(OTHER_SIZES) + page.tab.evaluate(OTHER_SPACES)
        if problems:
            wrong[address] = problems
    assert wrong == {}


def test_every_target_on_a_phone_is_large_enough(page):
    page.tab.resize(PHONE, 800)
    wrong = {}
    for address in page.addresses:
        show(page, address)
        if problems := page.tab.evaluate(SMALL_TARGETS):
            wrong[address] = problems
    page.topic(page.hub.channel_id, page.hub.topic_id)
    page.sees("paragraph", ".list")
    page.press("k")
    page.has(".message.selected")
    page.click(".menu")
    page.has(".with-menu")
    wrong["menu"] = page.tab.evaluate(SMALL_TARGETS)
    assert wrong == {"menu": []}


def test_operators_view_begins_in_the_upper_half_of_a_phone(page):
    page.tab.resize(PHONE, 800)
    page.go("#/")
    page.sees("Home", "h1")
    wrong = {}
    for address in (each for each in page.addresses if "operate" in each):
        show(page, address)
        if problems := page.tab.evaluate(HIDDEN_AT_FIRST):
            wrong[address] = problems
    assert wrong == {}


def test_message_text_is_at_most_75_characters_wide(page):
    page.tab.resize(2000, 900)
    page.topic(page.hub.channel_id, page.hub.topic_id)
    page.sees("paragraph", ".list")
    assert 0.8 < page.tab.evaluate(WIDTH_OF_75) < 1.1


@pytest.mark.parametrize("width", [1280, 1000, PHONE])
def test_messages_stay_in_place_when_a_pane_opens(page, width):
    page.tab.resize(width, 800)
    page.topic(page.hub.channel_id, page.hub.topic_id)
    page.sees("Deploy?", ".list .ask")
    if page.count(".pane"):
        page.click(".pane button", "Close")
    page.lacks(".pane")
    page.tab.evaluate(FRAMES)
    page.tab.evaluate(WATCH_SHIFTS)
    before = page.tab.evaluate(TOPS)
    page.click("header button", "Attachments")
    page.has(".pane")
    page.tab.evaluate(FRAMES)
    assert page.tab.evaluate(TOPS) == before
    assert page.tab.evaluate("window.shift") < 0.01
