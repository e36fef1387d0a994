"""Inboxes over a file, for each test."""

import pytest

from tests.support.inbox import InboxFixture


@pytest.fixture
def new_inbox(tmp_path):
    """Makes an inbox, or that of the same file again."""
    inboxes = []

    def make(*arguments, **settings):
        inboxes.append(InboxFixture(tmp_path, *arguments, **settings))
        return inboxes[-1]

    yield make
    for inbox in inboxes:
        inbox.close()
