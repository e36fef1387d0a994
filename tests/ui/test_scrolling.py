"""A topic of many messages scrolls like one of few: with few rows in the page."""

import pytest

from tests.support.uipage import ui_page
from tests.support.until import until

pytestmark = pytest.mark.slow

FEW, MANY = 100, 4_000
ROWS_MAX = 300
# Scrolls by half a window a frame, and turns round where the list ends. The most rows in the page.
SCROLL = """
new Promise((resolve) => {
  const list = document.querySelector('.list');
  let rows = 0, steps = 0, by = -400;
  const step = () => {
    rows = Math.max(rows, document.querySelectorAll('.list .row').length);
    const from = list.scrollTop;
    list.scrollTop += by;
    if (list.scrollTop === from) by = -by;
    steps += 1;
    if (steps < 120) requestAnimationFrame(step);
    else resolve(rows);
  };
  requestAnimationFrame(step);
})
"""


def fill(hub, name, count):
    channel_id, topic_id = hub.channel_with_topic(name)
    hub.send_many(topic_id, [f"message {i} of {count}\\n" * (1 + i % 3) for i in range(count)])
    return channel_id, topic_id


def test_huge_topic_scrolls_like_a_small_one(hub):
    few, many = (fill(hub, f"of {count}", count) for count in (FEW, MANY))
    with ui_page(hub) as page:
        page.open()
        for count, topic in ((FEW, few), (MANY, many)):
            page.topic(*topic)
            page.sees(f"message {count - 1} of", ".list")
            assert 0 < page.tab.evaluate(SCROLL) < ROWS_MAX


def test_older_messages_are_read_while_scrolling_and_keep_their_place(hub):
    topic = fill(hub, "older", 450)
    with ui_page(hub) as page:
        page.open()
        page.topic(*topic)
        page.sees("message 449 of", ".list")
        scroll = "void (document.querySelector('.list').scrollTop -= 2000)"
        until(
            lambda: page.tab.evaluate(scroll) or "message 0 of" in page.text(".list"), 60,
            "the first message is reached",
        )  # fmt: skip
        numbers = page.tab.evaluate(
            "[...document.querySelectorAll('.list .text')]"
            ".map((each) => Number(each.textContent.split(' ')[1]))"
        )
        assert numbers == sorted(set(numbers))
        hub.send(topic[1], "arrives at the end")
        page.sees("message 0 of", ".list")
        page.tab.evaluate("void (document.querySelector('.list').scrollTop = 1e9)")
        page.sees("arrives at the end", ".list")
