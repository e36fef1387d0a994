"""The palette and the sidebar find channels, topics and everything else by name."""

import json

import pytest

from tests.support.operated_workspace import RUN, fill_queues
from tests.support.servedhub import serve
from tests.support.uipage import ui_page
from tests.support.until import until

pytestmark = pytest.mark.slow

CHANNELS = 306
INPUT = ".palette input"
FIRST = ".palette [aria-selected=true]"
IN_VIEW = """
(() => { const row = document.querySelector('.sidebar [aria-current]');
  if (!row) return false;
  const [box, { top, bottom }] = [document.querySelector('.sidebar'), row.getBoundingClientRect()];
  const { top: above, bottom: below } = box.getBoundingClientRect();
  return top >= above && bottom <= below && row.innerText; })()
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("ui")) as hub:
        hub.channels = {f"agent-{n:03}": hub.channel(f"agent-{n:03}") for n in range(CHANNELS)}
        hub.topics = {}
        for number in range(0, CHANNELS, 3):
            channel = hub.channels[f"agent-{number:03}"]
            hub.topics[number] = hub.topic(channel, f"weekly report {number}")
        hub.message = hub.send(hub.topics[3], "sent early")["message"]
        hub.made(hub.http.post("/api/v1/jobs/runs", RUN))
        fill_queues(hub)
        yield hub


@pytest.fixture
def page(page):
    page.go("#/")
    page.has(".sidebar .channel")
    return page


def open_palette(page, words=""):
    page.tab.call(
        "Input.dispatchKeyEvent", type="keyDown", key="k", code="KeyK", modifiers=2,
        windowsVirtualKeyCode=75,
    )  # fmt: skip
    page.has(f"{INPUT}:focus")
    page.tab.call("Input.insertText", text=words)


@pytest.mark.parametrize(
    ("words", "kind", "name", "address"),
    [
        ("agent-217", "Channel", "agent-217", "#/c/ch_"),
        ("weekly report 300", "Topic", "weekly report 300", "#/c/ch_"),
        ("wkrep303", "Topic", "weekly report 303", "#/c/ch_"),
        ("ingest", "Job", "ingest", "#/operate?view=jobs&open=ingest"),
        ("builds", "Queue", "builds", "#/operate?view=queues&open=builds"),
        ("ada", "Person", "ada", "#/operate?view=people&open="),
        ("bytes_total", "Setting", "courier.bytes_total_max", "#/operate?view=settings&open="),
    ],
)
def test_palette_finds_by_name(page, words, kind, name, address):
    open_palette(page, words)
    page.sees(name, FIRST)
    page.sees(kind, FIRST)
    page.press("Enter")
    page.lacks(".palette")
    until(lambda: address in page.tab.evaluate("location.hash"), 20, f"{address} is open")


def test_palette_opens_a_message_by_its_id(hub, page):
    open_palette(page, hub.message["id"])
    page.sees("Message", FIRST)
    page.press("Enter")
    page.sees("sent early", ".message.selected")


def test_palette_without_words_lists_visited_places_first(hub, page):
    page.topic(hub.channels["agent-009"], hub.topics[9])
    page.sees("weekly report 9", "h1")
    page.go(f"#/c/{hub.channels['agent-111']}")
    page.sees("agent-111", "h1")
    open_palette(page)
    page.sees("agent-111", FIRST)
    page.press("ArrowDown")
    page.sees("weekly report 9", FIRST)
    page.press("ArrowUp", "ArrowUp")
    page.has(".palette li:last-child[aria-selected=true]")
    page.press("Escape")
    page.lacks(".palette")


def test_palette_without_a_match_says_so(page):
    open_palette(page, "qqqq zzzz")
    page.sees("Nothing has this name", ".palette")
    page.press("Enter", "Escape")
    page.lacks(".palette")


def test_open_channel_is_in_view_among_hundreds(hub, page):
    for number in (300, 3):
        page.topic(hub.channels[f"agent-{number:03}"], hub.topics[number])
        title = f"weekly report {number}"
        until(lambda wanted=title: page.tab.evaluate(IN_VIEW) == wanted, 20, f"{title} is in view")
    assert page.count(".sidebar .channel") < CHANNELS
    page.click(".sidebar button", "More (")
    until(lambda: page.count(".sidebar .channel") >= CHANNELS, 20, "all channels are listed")


def test_channel_with_a_new_message_becomes_active(hub, page):
    page.is_live()
    page.lacks(".channel a[title=agent-030]")
    hub.send(hub.topics[30], "news")
    page.has(".channel a.unread[title=agent-030]")
    weight = "getComputedStyle(document.querySelector('.channel a%s')).fontWeight"
    assert page.tab.evaluate(weight % ".unread") == "600"
    assert page.tab.evaluate(weight % ":not(.unread)") == "400"


def test_pinned_channel_leads_the_sidebar_after_a_reload(hub, page):
    page.go(f"#/c/{hub.channels['agent-250']}")
    page.click("main button", "Pin")
    page.sees("agent-250", "section[aria-label='Pinned channels']")
    page.open("#/")
    page.sees("agent-250", "section[aria-label='Pinned channels']")
    page.go(f"#/c/{hub.channels['agent-250']}")
    page.click("main button", "Unpin")
    page.lacks("section[aria-label='Pinned channels']")


def test_filter_finds_channels_and_topics(page):
    page.fill(".sidebar input", "report 285")
    page.sees("weekly report 285", ".filtered")
    assert page.count(".filtered li") == 1
    page.click(".filtered a")
    page.sees("weekly report 285", "h1")
    page.fill(".sidebar input", "agent-28")
    page.sees("13 found", ".sidebar")


def test_channel_created_while_the_list_loads_stays(hub):
    """The list was read before the channel existed, and arrives after the event about it."""
    hold = """
    const send = window.fetch;
    window.held = new Promise((resolve) => { window.letGo = resolve; });
    window.fetch = async (...given) => {
      const answer = await send(...given);
      if (String(given[0]).startsWith('/api/v1/channels')) await window.held;
      return answer;
    };
    """
    with ui_page(hub) as page:
        page.tab.call("Page.addScriptToEvaluateOnNewDocument", source=hold)
        page.open("#/")
        page.is_live()
        channel = hub.channel("zz late")
        seen = "import('/ui/store.js').then(({ state }) => state.channels.has(%s))"
        until(lambda: page.tab.evaluate(seen % json.dumps(channel)), 20, "the event arrived")
        page.tab.evaluate("window.letGo()")
        page.has(".sidebar .channel")
        page.fill(".sidebar input", "zz late")
        page.sees("zz late", ".filtered")
