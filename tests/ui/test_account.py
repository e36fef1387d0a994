"""The person's own menu at the top right, in a real browser."""

import pytest

from tests.support.axe import is_accessible
from tests.support.uipage import token_of_ada, ui_page
from tests.support.until import until

pytestmark = pytest.mark.slow


@pytest.fixture
def page(hub):
    with ui_page(hub) as page:
        page.click(".person", "ada")
        page.has("dialog.account")
        yield page


def test_menu_shows_scopes_last_use_and_this_browser(page):
    page.sees("admin", ".account .chips")
    page.sees("This browser", ".account .sessions")
    page.sees("Last use", ".account dl")
    is_accessible(page.tab, "account")
    assert page.tab.problems == []


def test_another_session_is_ended_in_the_menu(hub, page):
    with ui_page(hub, signed_in=False) as other:
        other.sign_in(token_of_ada(hub))
        page.press("Escape")
        page.lacks("dialog")
        page.click(".person", "ada")
        page.sees("A browser", ".account .sessions")
        open_sessions = page.count(".account .sessions li")
        page.tab.evaluate(
            "void [...document.querySelectorAll('.account .sessions li')]"
            ".findLast((each) => each.innerText.startsWith('A browser'))"
            ".querySelector('button').click()"
        )
        page.click("dialog:not(.account) .buttons button", "Sign out")
        until(lambda: page.count(".account .sessions li") < open_sessions, 20, "one has gone")


def test_theme_and_keys_are_in_the_menu(page):
    page.click(".account button", "Light or dark")
    page.has("[data-theme]")
    page.click(".account button", "Keys")
    page.sees("Next message", "dialog[open]")


def test_sign_out_in_the_menu_ends_the_session(page):
    page.click(".account button", "Sign out here")
    page.sees("Sign in", ".person")


def test_menu_fits_on_a_phone(hub):
    with ui_page(hub) as page:
        page.tab.resize(400, 760)
        page.click(".person", "ada")
        page.sees("This browser", ".account .sessions")
        wide = "document.querySelector('dialog.account').getBoundingClientRect()"
        assert page.tab.evaluate(f"{wide}.left >= 0 && {wide}.right <= 400")
        is_accessible(page.tab, "account on a phone")
