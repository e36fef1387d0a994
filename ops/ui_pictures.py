"""Takes the documentation's web UI pictures for `just pictures`.

Every run fills a new workspace with fixed texts and uses fixed window sizes.
"""

import base64
import tempfile
from pathlib import Path

from tests.doctor.patience import PATIENCE
from tests.support.operated_workspace import fill_all
from tests.support.servedhub import ServedHub, serve
from tests.support.uipage import UiPage, ui_page
from tests.support.until import until

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
BYTES_MAX = 120_000
FAST = {"appliance.operations.rates.Sampler.interval_seconds": 0.1}
SAMPLES_MIN = 60
TALK = (
    ("planner", "The release needs three checks: migrations, the upgrade test, the images."),
    ("builder", "Migrations run twice without a change. The log: https://ci.example.com/run/812"),
    ("builder", "The upgrade from 2.3 keeps all 41,207 messages."),
    ("reviewer", "Two images differ from the last build. I compare their packages."),
    ("planner", "Then I wait. Ask me before you publish."),
    ("reviewer", "Only the certificates changed: https://ci.example.com/run/815"),
    ("ada", "Good. Publish it after 14:00."),
    ("builder", "Done. Everything is verified and signed."),
)
QUESTIONS = (
    {"text": "In which region should the index live?", "sender": "planner"},
    {
        "text": "Publish release 2.4? Both images are verified: https://ci.example.com/run/815",
        "sender": "builder",
        "choices": ["publish", "wait until Monday"],
        "default": "wait until Monday",
        "deadline_seconds": 5400,
        "blocks": ["publish-2.4"],
    },
)


def fill(hub: ServedHub) -> tuple[str, str]:
    """Create channels and topics, and post a conversation in the topic `release 2.4`."""
    for name, titles in {"deploys": ("staging",), "research": ("vector index", "prices")}.items():
        channel_id = hub.channel(name)
        for title in titles:
            hub.topic(channel_id, title)
    channel_id = hub.channel("releases")
    hub.topic(channel_id, "ideas")
    topic_id = hub.topic(channel_id, "release 2.4")
    for sender, text in TALK:
        command = {"topic_id": topic_id, "sender": sender, "content_raw": text}
        message = hub.made(hub.http.post("/api/v1/messages", command))["message"]
    edit = {"op": "edit", "content_raw": "Done. Everything is verified, signed and published."}
    hub.http.patch(f"/api/v1/messages/{message['id']}", edit)
    return channel_id, topic_id


def save(page: UiPage, name: str) -> None:
    data = base64.b64decode(page.tab.call("Page.captureScreenshot", format="png")["data"])
    assert len(data) <= BYTES_MAX, f"{name}: {len(data)} bytes"
    (FOLDER / f"ui-{name}.png").write_bytes(data)


def save_operated(hub: ServedHub, page: UiPage) -> None:
    """Fill the hub with work, and save the operator's views."""
    fill_all(hub)
    page.tab.resize(980, 760)
    page.go("#/operate?view=findings")
    page.sees("dead letters", ".findings")
    save(page, "findings")
    page.go("#/operate?view=queues&open=builds")
    page.sees("builds-0", ".detail > pre")
    save(page, "queues")
    page.go("#/operate?view=workers")
    page.sees("linker", ".board")
    page.tab.prefer("dark")
    save(page, "workers-dark")
    page.tab.prefer("light")
    rates = "/api/v1/rates"
    until(lambda: len(hub.http.get(rates).body["at_ms"]) > SAMPLES_MIN, 60, "there are samples")
    page.go("#/operate?view=rates")
    page.sees("HTTP requests", ".charts")
    save(page, "rates")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        serve(Path(folder), constants=FAST, **PATIENCE) as hub,
        ui_page(hub) as page,
    ):
        page.tab.resize(980, 600)
        page.open()
        page.sees("This workspace is empty")
        save(page, "start")
        channel_id, topic_id = fill(hub)
        page.topic(channel_id, topic_id)
        page.click(".topic > .bar button", "Attachments")
        page.sees("815", ".attachments")
        page.sees("published", ".list")
        save(page, "topic")
        page.tab.prefer("dark")
        page.press("k", "m")
        page.sees("1 message moves", "dialog")
        save(page, "move-dark")
        page.press("Escape")
        page.tab.prefer("light")
        page.go("#/search?q=images")
        page.has("mark")
        save(page, "search")
        page.go(f"#/events?name=message.edited&channel_id={channel_id}")
        page.click(".event .fold")
        page.has(".event pre")
        save(page, "events")
        page.press("?")
        page.has("dialog[open]")
        save(page, "keys")
        page.press("Escape")
        save_operated(hub, page)
        page.tab.resize(400, 760)
        page.topic(channel_id, topic_id)
        page.sees("published", ".list")
        save(page, "phone")
        for question in QUESTIONS:
            hub.made(hub.http.post("/api/v1/asks", question))
        page.tab.resize(980, 600)
        page.go("#/asks")
        page.sees("publish-2.4", ".ask")
        save(page, "asks")


if __name__ == "__main__":
    main()
