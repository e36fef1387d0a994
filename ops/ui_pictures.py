"""Takes the documentation's web UI pictures for `just pictures`.

Every run lives through the same week in a new workspace, and uses fixed window sizes.
"""

import base64
import tempfile
from pathlib import Path

from ops.ui_week import RELEASE, WEEK_HOURS, Week, set_clock, shift_clock, write_growth
from tests.doctor.patience import PATIENCE
from tests.support.servedhub import ServedHub, serve
from tests.support.uipage import UiPage, ui_page
from tests.support.until import until

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
BYTES_MAX = 160_000
FAST = {"appliance.operations.rates.Sampler.interval_seconds": 0.1}
SAMPLES_MIN = 60


def save(page: UiPage, name: str) -> None:
    data = base64.b64decode(page.tab.call("Page.captureScreenshot", format="png")["data"])
    assert len(data) <= BYTES_MAX, f"{name}: {len(data)} bytes"
    (FOLDER / f"ui-{name}.png").write_bytes(data)


def save_operated(hub: ServedHub, page: UiPage) -> None:
    """Save the operator's views."""
    page.tab.resize(980, 760)
    page.go("#/operate")
    page.sees("dead letters", ".view")
    save(page, "overview")
    page.go("#/operate?view=findings")
    page.sees("dead letters", ".findings")
    save(page, "findings")
    page.go("#/operate?view=queues&open=builds")
    page.sees("builds-0", ".detail .trouble")
    save(page, "queues")
    page.go("#/operate?view=jobs&open=nightly")
    page.sees("the disk is full", ".runs .output")
    save(page, "jobs")
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
    page.go("#/operate?view=forecast&range=14d")
    page.has(".charts .trend")
    save(page, "forecast")


def save_reading(page: UiPage, week: Week) -> None:
    """Save the pages of people who read and answer."""
    channel_id, topic_id = week.channel("releases"), week.topics[RELEASE]
    page.tab.resize(980, 700)
    page.go("#/")
    page.sees("publish", ".ask")
    save(page, "home")
    page.tab.resize(1300, 700)
    page.topic(channel_id, topic_id)
    page.sees("815", ".attachments")
    page.sees("published", ".list")
    save(page, "topic")
    page.tab.resize(980, 600)
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
    page.go("#/asks")
    page.sees("publish-2.4", ".ask")
    save(page, "asks")
    page.tab.resize(400, 760)
    page.topic(channel_id, topic_id)
    page.sees("published", ".list")
    save(page, "phone")
    page.tab.resize(390, 844)
    page.go("#/operate?view=jobs")
    page.has(".operate table")
    save(page, "phone-jobs")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        with serve(Path(name, "empty"), **PATIENCE) as hub, ui_page(hub) as page:
            page.tab.resize(980, 600)
            page.open()
            page.sees("This workspace is empty")
            save(page, "start")
        clock_file = shift_clock(Path(name))
        set_clock(clock_file, WEEK_HOURS)
        clock = {"PYTHONPATH": name}
        with serve(Path(name, "hub"), constants=FAST, **PATIENCE, **clock) as hub:
            week = Week(hub, clock_file)
            week.live()
            set_clock(clock_file, 0)
            growth = hub.datadir.dir / "growth.json"
            hub.stop()
            hub.start()
            write_growth(hub, growth)
            hub.kill()
            hub.start()
            week.end()
            with ui_page(hub) as page:
                save_reading(page, week)
                save_operated(hub, page)


if __name__ == "__main__":
    main()
