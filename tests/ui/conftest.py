"""A browser with the web UI for each test, and a topic of its own."""

import pytest

from tests.support.uipage import ui_page


@pytest.fixture
def page(hub):
    with ui_page(hub) as page:
        yield page
        assert page.tab.problems == []


@pytest.fixture
def topic(hub, request):
    """A new channel and topic."""
    return hub.channel_with_topic(request.node.name[:90])
