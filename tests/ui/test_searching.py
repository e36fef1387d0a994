"""Search in the page: filters as pills, the place of each result, order, and more results."""

import pytest

pytestmark = pytest.mark.slow

RESULTS = ".results li"
FIRST = ".results li:first-child"


@pytest.fixture
def page(page):
    page.open()
    return page


def test_filters_are_pills_that_can_be_removed(hub, page):
    channel_id, topic_id = hub.channel_with_topic("filters")
    _, other_topic = hub.channel_with_topic("elsewhere")
    hub.send(topic_id, "wombat in the garden")
    hub.send(other_topic, "wombat in the wood")
    page.go("#/search?q=wombat")
    page.sees("elsewhere \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} t", ".results")
    page.choose("select", channel_id)
    page.sees("1 message", "main")
    page.sees("filters", ".pills")
    page.sees("t · tester", FIRST)
    page.fill("label:nth-of-type(2) input", "nobody")
    page.press("Enter")
    page.sees("No message", "main")
    page.sees("nobody", ".pills")
    page.click(".pills button", "Remove the filter from")
    page.sees("wombat in the garden", ".results")
    page.go("#/search?q=wombat&until=2020-01-01")
    page.sees("No message", "main")
    page.go("#/search?q=wombat&since=2020-01-01")
    page.sees("wombat in the wood", ".results")


def test_word_that_was_begun_finds_the_newest_first(hub, page):
    _, topic_id = hub.channel_with_topic("hashes")
    hub.send(topic_id, "3f9ac41d77 3f9ac41d77 3f9ac41d77")
    hub.send(topic_id, "a longer message about 3f9ac41d77, which comes later")
    page.go("#/search?q=3f9ac41")
    page.sees("2 messages", "main")
    page.choose("label:nth-of-type(6) select", "newest")
    page.sees("comes later", FIRST)


def test_more_results_are_loaded_on_demand(hub, page):
    _, topic_id = hub.channel_with_topic("many")
    hub.send_many(topic_id, [f"numbat {i}" for i in range(70)])
    page.go("#/search?q=numbat")
    page.sees("The best 50 messages", "main")
    page.click("main button", "More results")
    page.sees("70 messages", "main")
    assert page.count(RESULTS) == 70
