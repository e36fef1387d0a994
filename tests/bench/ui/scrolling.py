"""Scrolls a topic of 100 and one of 100,000 messages by turns: python -m tests.bench.ui.scrolling

Prints one JSON object. Each turn has the most rows in the page, the longest frame, the tasks of
more than 50 ms, which Chromium calls long, and the processor time of the longest task. The last
one does not depend on what else the machine does.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.bench import machine
from tests.support.servedhub import ServedHub, serve
from tests.support.uipage import UiPage, ui_page

FEW, MANY = 100, 100_000
TURNS = 5
# Scrolls by half a window a frame, and turns round where the list ends.
SCROLL = """
new Promise((resolve) => {
  const list = document.querySelector('.list');
  const result = { rows: 0, frame_ms: 0, long_tasks_ms: [] };
  const observer = new PerformanceObserver((entries) =>
    result.long_tasks_ms.push(...entries.getEntries().map((each) => each.duration)));
  observer.observe({ type: 'longtask' });
  let steps = 0, before = performance.now(), by = -400;
  const step = (now) => {
    result.rows = Math.max(result.rows, document.querySelectorAll('.list .row').length);
    if (steps) result.frame_ms = Math.max(result.frame_ms, now - before);
    before = now;
    const from = list.scrollTop;
    list.scrollTop += by;
    if (list.scrollTop === from) by = -by;
    steps += 1;
    if (steps < 120) requestAnimationFrame(step);
    else setTimeout(() => { observer.disconnect(); resolve(result); }, 100);
  };
  requestAnimationFrame(step);
})
"""


def fill(hub: ServedHub, name: str, count: int) -> tuple[str, str]:
    channel_id, topic_id = hub.channel_with_topic(name)
    hub.send_many(topic_id, [f"message {i} of {count}\\n" * (1 + i % 3) for i in range(count)])
    return channel_id, topic_id


def scroll(page: UiPage, topic: tuple[str, str], count: int) -> dict[str, Any]:
    """From the end of the topic to older messages."""
    page.topic(*topic)
    page.sees(f" of {count}", ".list")
    page.tab.evaluate("void (document.querySelector('.list').scrollTop = 1e9)")
    page.sees(f"message {count - 1} of", ".list")
    result, tasks_ms = page.tab.trace_tasks(SCROLL)
    return {**result, "task_cpu_ms": round(max(tasks_ms), 1)}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as hub, ui_page(hub) as page:
        topics = {count: fill(hub, f"of {count}", count) for count in (FEW, MANY)}
        page.open()
        turns = [
            {"messages": count, **scroll(page, topic, count)}
            for _ in range(TURNS)
            for count, topic in topics.items()
        ]
        print(json.dumps({**machine.conditions(Path(folder)), "turns": turns}, indent=2))


if __name__ == "__main__":
    main()
