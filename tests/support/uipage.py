"""The web UI in a real browser: a page of a served appliance, and how a person uses it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.chromium import BrowserPage, browser_page
from tests.support.servedhub import ServedHub
from tests.support.until import until

SECONDS_MAX = 20


class UiPage:
    """A tab with the web UI."""

    def __init__(self, tab: BrowserPage, hub: ServedHub, root: str = "") -> None:
        """`root`: the address of a proxy, if the browser uses one."""
        self.tab = tab
        self.hub = hub
        self.root = root or hub.url

    def open(self, address: str = "") -> None:
        """Load the page, also if its address is already open."""
        if not self.tab.open(f"{self.root}/ui/{address}"):
            self.tab.reload()

    def sign_in(self, token_id: str) -> None:
        """By a one-time link with the rights of this token, pasted into the tab as it is."""
        link = self.hub.http.post("/api/v1/invitations", {"token_id": token_id}).body
        self.tab.open(f"{self.root}/ui/#invite={link['secret']}")
        self.has(".person")
        self.misses("Sign in", ".person")

    def go(self, address: str) -> None:
        self.tab.evaluate(f"void (location.hash = {json.dumps(address)})")

    def topic(self, channel_id: str, topic_id: str, message_id: str = "") -> None:
        message = f"/m/{message_id}" if message_id else ""
        self.go(f"#/c/{channel_id}/t/{topic_id}{message}")

    def text(self, selector: str = "body") -> str:
        element = f"document.querySelector({json.dumps(selector)})"
        return str(self.tab.evaluate(f"{element} ? {element}.innerText : ''"))

    def count(self, selector: str) -> int:
        return int(self.tab.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length"))

    def sees(self, text: str, selector: str = "body") -> None:
        until(lambda: text in self.text(selector), SECONDS_MAX, f"{selector} has {text!r}")

    def misses(self, text: str, selector: str = "body") -> None:
        until(lambda: text not in self.text(selector), SECONDS_MAX, f"{selector} has no {text!r}")

    def has(self, selector: str) -> None:
        until(lambda: self.count(selector) > 0, SECONDS_MAX, f"there is {selector}")

    def lacks(self, selector: str) -> None:
        until(lambda: not self.count(selector), SECONDS_MAX, f"{selector} is gone")

    def click(self, selector: str, text: str = "") -> None:
        """Click the first element that matches and has this text or label."""
        script = (
            f"(() => {{ const wanted = {json.dumps(text)};"
            f" const e = [...document.querySelectorAll({json.dumps(selector)})].find((each) =>"
            " !each.disabled && `${each.textContent}|${each.ariaLabel}`.includes(wanted));"
            " e?.click(); return Boolean(e); })()"
        )
        until(lambda: self.tab.evaluate(script), SECONDS_MAX, f"{selector} {text!r} is there")

    def fill(self, selector: str, text: str) -> None:
        """Replace the text of a field, as typing does. A dialog that opens may take the focus."""

        def is_typed() -> bool:
            element = f"document.querySelector({json.dumps(selector)})"
            self.tab.evaluate(f"{element}?.focus(); {element}?.select()")
            self.tab.call("Input.insertText", text=text)
            return bool(self.tab.evaluate(f"{element}?.value === {json.dumps(text)}"))

        until(is_typed, SECONDS_MAX, f"{selector} has {text!r}")

    def choose(self, selector: str, value: str) -> None:
        script = (
            f"(() => {{ const field = document.querySelector({json.dumps(selector)});"
            f" const value = {json.dumps(value)};"
            " if (![...(field?.options || [])].some((each) => each.value === value)) return false;"
            " field.value = value;"
            " return field.dispatchEvent(new Event('change', { bubbles: true })); })()"
        )
        until(lambda: self.tab.evaluate(script), SECONDS_MAX, f"{selector} has {value!r}")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.tab.press(key)

    @contextmanager
    def beside(self) -> "Iterator[UiPage]":
        """Another tab with the same cookies and storage."""
        with self.tab.beside() as tab:
            tab.resize(1280, 800)
            page = UiPage(tab, self.hub, self.root)
            page.open()
            yield page

    def is_live(self) -> None:
        self.has(".dot.live")


def token_of_ada(hub: ServedHub) -> str:
    """The id of a token that may do everything."""
    rows = hub.http.get("/api/v1/tokens").body["tokens"]
    ids = [row["id"] for row in rows if row["name"] == "ada"]
    if not ids:
        body = {"name": "ada", "scopes": ["admin"]}
        ids = [hub.made(hub.http.post("/api/v1/tokens", body))["token"]["id"]]
    return str(ids[0])


@contextmanager
def ui_page(hub: ServedHub, *, signed_in: bool = True, root: str = "") -> Iterator[UiPage]:
    """The UI of `hub` in a browser of its own. Errors in the console fail the test."""
    with browser_page() as tab:
        tab.resize(1280, 800)
        page = UiPage(tab, hub, root)
        if signed_in:
            page.sign_in(token_of_ada(hub))
        yield page
