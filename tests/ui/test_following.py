"""A reader at the end of a live topic stays there, and one who left it learns what is new."""

import pytest

from tests.support.until import until

pytestmark = pytest.mark.slow

AT_END = """
(() => { const list = document.querySelector('.list');
  return list.scrollHeight - list.scrollTop - list.clientHeight < 50; })()
"""
TOP = "document.querySelector('.list').scrollTop"
SHOWN = """
(() => { const box = document.querySelector('.list').getBoundingClientRect();
  return [...document.querySelectorAll('.list .message')].filter((each) => {
    const { top, bottom } = each.getBoundingClientRect();
    return bottom > box.top && top < box.bottom; })
    .map((each) => each.ariaLabel + each.querySelector('.text').innerText); })()
"""
FRAMES = """
new Promise((resolve) => {
  let count = 0;
  const next = () => (++count < 6 ? requestAnimationFrame(next) : resolve(count));
  next();
})
"""
ABOVE_LINE = (
    "document.querySelector('.first-new')?.closest('.message').querySelector('.text').innerText"
)


def show(hub, page, topic, count=60):
    hub.send_many(topic[1], [f"message {number}" for number in range(count)])
    page.topic(*topic)
    page.sees(f"message {count - 1}", ".list")
    page.is_live()


def scroll_up(page, pixels=900):
    page.tab.evaluate(f"void ({TOP} -= {pixels})")
    until(lambda: not page.tab.evaluate(AT_END), 20, "the list has left its end")
    page.tab.evaluate(FRAMES)


def is_at_end(page):
    until(lambda: page.tab.evaluate(AT_END), 20, "the list is at its end")


def test_selected_message_does_not_end_following(hub, page, topic):
    show(hub, page, topic)
    page.click(".row:last-child .text")
    page.has(".message.selected")
    hub.send_many(topic[1], [f"later {number}" for number in range(40)])
    page.sees("later 39", ".list")
    is_at_end(page)
    page.click(".row:last-child .text")
    page.press("k", "j")
    hub.send_many(topic[1], [f"much later {number}" for number in range(40)])
    page.sees("much later 39", ".list")
    is_at_end(page)


def test_flood_does_not_end_following(hub, page, topic):
    show(hub, page, topic)
    page.click(".row:last-child .text")
    hub.send_many(topic[1], [f"flood {number}" for number in range(6_000)])
    page.sees("flood 5999", ".list")
    is_at_end(page)


def test_reader_who_scrolled_up_keeps_the_place_and_sees_what_is_new(hub, page, topic):
    show(hub, page, topic)
    scroll_up(page)
    before = page.tab.evaluate(SHOWN)
    hub.send_many(topic[1], [f"new {number}" for number in range(6)])
    page.sees("6 new", ".newer")
    page.sees("6", ".topics .badge")
    assert page.tab.evaluate(SHOWN) == before
    page.click(".newer button")
    page.sees("new 5", ".list")
    is_at_end(page)
    page.lacks(".newer")
    page.lacks(".topics .badge")
    assert page.tab.evaluate(ABOVE_LINE) == "new 0"
    hub.send(topic[1], "and one more")
    page.sees("and one more", ".list")
    is_at_end(page)
    page.lacks(".newer")


def test_reader_who_scrolled_up_keeps_the_place_through_a_flood(hub, page, topic):
    show(hub, page, topic)
    scroll_up(page)
    before = page.tab.evaluate(SHOWN)
    hub.send_many(topic[1], [f"flood {number}" for number in range(5_000)])
    page.sees("5,000 new", ".newer")
    page.sees("999+", ".topics .badge")
    assert page.tab.evaluate(SHOWN) == before
    page.click(".newer button")
    page.sees("flood 4999", ".list")
    is_at_end(page)


def test_line_marks_the_first_unread_message_of_an_opened_topic(hub, page, topic):
    other = hub.topic(topic[0], "elsewhere")
    show(hub, page, topic, count=5)
    page.topic(topic[0], other)
    page.sees("No messages yet")
    hub.send_many(topic[1], ["unread one", "unread two"])
    page.sees("2", ".topics a.unread .badge")
    page.click(".topics a.unread")
    page.sees("unread two", ".list")
    assert page.tab.evaluate(ABOVE_LINE) == "unread one"
    page.has(".first-new")
    page.topic(topic[0], other)
    page.sees("No messages yet")
    page.topic(*topic)
    page.sees("unread two", ".list")
    page.lacks(".first-new")


def test_own_message_leads_back_to_the_end(hub, page, topic):
    show(hub, page, topic)
    scroll_up(page)
    page.fill(".compose textarea", "from here")
    page.press("Enter")
    page.sees("from here", ".list")
    is_at_end(page)
    page.lacks(".first-new")
