"""A topic jumps to a day."""

import sqlite3
from contextlib import closing

import pytest

pytestmark = pytest.mark.slow

DAYS = 30
PER_DAY = 20


@pytest.fixture(scope="module")
def topic(hub):
    """Messages of thirty days, as if they had been sent then."""
    channel_id, topic_id = hub.channel_with_topic("diary")
    results = hub.send_many(topic_id, [f"entry {number}" for number in range(DAYS * PER_DAY)])
    times = [
        (
            f"2026-03-{1 + number // PER_DAY:02}T12:00:{number % PER_DAY:02}.000Z",
            each["message"]["id"],
        )
        for number, each in enumerate(results)
    ]
    with closing(sqlite3.connect(hub.datadir.database("hub"))) as foreign, foreign:
        foreign.executemany("UPDATE messages SET created_at = ? WHERE id = ?", times)
    return channel_id, topic_id


def choose_day(page, day):
    page.press("t")
    page.has("dialog[open] input:focus")
    page.tab.evaluate(
        "(() => { const field = document.querySelector('dialog input');"
        f" field.value = '{day}';"
        " field.dispatchEvent(new Event('input', { bubbles: true })); })()"
    )
    page.has("dialog .primary:enabled")
    page.press("Enter")
    page.lacks("dialog")


@pytest.mark.parametrize("width", [1280, 400])
def test_jump_selects_the_first_message_of_the_day(page, topic, width):
    page.open()
    page.tab.resize(width, 800)
    page.topic(*topic)
    page.sees(f"entry {DAYS * PER_DAY - 1}", ".list")
    choose_day(page, "2026-03-08")
    page.sees("entry 140", ".message.selected")
    page.sees("March 8", ".message.selected .day")
    page.sees("entry 139", ".list")
    choose_day(page, "2027-01-01")
    page.sees("No messages since that day", ".notice")
    page.sees("entry 140", ".message.selected")
