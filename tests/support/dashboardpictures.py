"""Makes the pictures of the dashboards in the documentation: just dashboard-pictures

Each is drawn from what Prometheus returns for the expressions of its panels, after an appliance
has worked for three minutes. They show what the panels have, and not how Grafana looks.
"""

import tempfile
import time
from collections.abc import Sequence
from html import escape
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from ops.monitoring import dashboards, rules
from tests.doctor.used import fill_mesh
from tests.support.operated_workspace import back_up, fill_bus, fill_queues
from tests.support.servedhub import serve
from tests.support.until import until
from tests.system.monitoring.prometheus import Prometheus, started
from tests.system.monitoring.workload import work

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
SECONDS = 180
STEP_SECONDS = 3
WIDTH, HEIGHT, MARGIN = 320, 190, 12
PLOT = (60, 34, 248, 84)
"""x, y, width and height of the curves in a panel."""
SERIES_MAX = 8
LEGEND_LINES, LEGEND_CHARACTERS = 4, 46
COLOURS = ("#3366aa", "#bb5500", "#228833", "#aa3377", "#66731e", "#5588cc", "#cc8844", "#777777")
SCALES = {
    "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")),
    "s": ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "percentunit": ((0.01, "%"),),
    "ops": ((1, "/s"),), "reqps": ((1, "/s"),), "Bps": ((1e3, "kB/s"), (1, "B/s")),
    "d": ((1, "d"),), "none": ((1, ""),),
}  # fmt: skip


class Series(msgspec.Struct, frozen=True):
    legend: str
    points: list[tuple[float, float]]
    """Seconds, value."""


def picture(title: str, panels: Sequence[tuple[dict[str, Any], list[Series]]]) -> str:
    """An SVG document. `panels`: each with its data."""
    rows = -(-len(panels) // dashboards.COLUMNS)
    width, height = dashboards.COLUMNS * WIDTH + MARGIN, rows * HEIGHT + 44
    drawn = "".join(
        f'<g transform="translate({MARGIN + i % dashboards.COLUMNS * WIDTH},'
        f'{36 + i // dashboards.COLUMNS * HEIGHT})">{draw_panel(panel, series)}</g>\n'
        for i, (panel, series) in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
        f' font-family="sans-serif" font-size="10" fill="#333"><title>{escape(title)}</title>\n'
        f'<rect width="{width}" height="{height}" fill="#f4f5f5"/>'
        f'<text x="{MARGIN}" y="24" font-size="16">{escape(title)}</text>\n{drawn}</svg>\n'
    )


def draw_panel(panel: dict[str, Any], series: list[Series]) -> str:
    frame = (
        f'<rect width="{WIDTH - MARGIN}" height="{HEIGHT - MARGIN}" rx="3" fill="#fff"'
        f' stroke="#ddd"/><text x="10" y="18" font-size="12">{escape(panel["title"])}</text>'
    )
    if not series:
        reason = escape(f"no data: {panel.get('empty', 'nothing happened')}")
        return f'{frame}<text x="10" y="80" fill="#777">{reason}</text>'
    draw = draw_numbers if panel.get("number") else draw_curves
    return frame + draw(panel["unit"], series)


def draw_numbers(unit: str, series: list[Series]) -> str:
    lines = [
        f'<text x="10" y="{48 + 28 * i}"><tspan font-size="20">{in_unit(each.points[-1][1], unit)}'
        f"</tspan> {shorten(each.legend)}</text>"
        for i, each in enumerate(series[:LEGEND_LINES])
    ]
    return "".join(lines)


def draw_curves(unit: str, series: list[Series]) -> str:
    x, y, width, height = PLOT
    values = [value for each in series for _, value in each.points]
    low, high = min(0.0, *values), max(values)
    high = high if high > low else low + 1
    end = max(each.points[-1][0] for each in series)
    drawn = "".join(
        f'<line x1="{x}" x2="{x + width}" y1="{at}" y2="{at}" stroke="#e4e4e4"/>'
        f'<text x="{x - 4}" y="{at + 3}" text-anchor="end">{in_unit(value, unit)}</text>'
        for at, value in ((y, high), (y + height / 2, (low + high) / 2), (y + height, low))
    )
    for i, each in enumerate(series[:SERIES_MAX]):
        points = " ".join(
            f"{x + width * (1 - (end - at) / SECONDS):.0f},"
            f"{y + height * (high - value) / (high - low):.1f}"
            for at, value in each.points
        )
        drawn += (
            f'<polyline points="{points}" fill="none" stroke="{COLOURS[i]}" stroke-width="1.5"/>'
        )
        if i < LEGEND_LINES:
            drawn += (
                f'<text x="10" y="{y + height + 18 + 11 * i}" fill="{COLOURS[i]}">'
                f"{shorten(each.legend)}</text>"
            )
    return drawn


def in_unit(value: float, unit: str) -> str:
    scales = SCALES[unit]
    size, name = next((each for each in scales if abs(value) >= each[0]), scales[-1])
    return f"{value / size:.3g} {name}".rstrip() if value else "0"


def shorten(legend: str) -> str:
    text = legend if len(legend) <= LEGEND_CHARACTERS else f"{legend[: LEGEND_CHARACTERS - 1]}…"
    return escape(text)


def read_panel(server: Prometheus, panel: dict[str, Any], end: float) -> list[Series]:
    """The series with the highest last values first."""
    results = server.query_range(panel["expr"], end - SECONDS, end, STEP_SECONDS)
    read = [
        Series(fill_in(panel["legend"], result["metric"]), points)
        for result in results
        if (points := [(at, float(text)) for at, text in result["values"] if text != "NaN"])
    ]
    return sorted(read, key=lambda each: -each.points[-1][1])


def fill_in(legend: str, labels: dict[str, str]) -> str:
    """As Grafana does. The instance is the same in all and left out."""
    for name, value in labels.items():
        legend = legend.replace(f"{{{{{name}}}}}", "" if name == "instance" else value)
    return " ".join(legend.split()) or "appliance"


def main() -> None:
    with tempfile.TemporaryDirectory() as name, serve(Path(name) / "hub", "--no-limits") as hub:
        server = Prometheus(Path(name), rules.slo_rules(), {"agentlip": (hub.port, hub.token)})
        with started(server.command, server.port, Path(name) / "log"):
            fill_mesh(hub)
            fill_queues(hub)
            fill_bus(hub)
            back_up(hub)
            began, numbers = time.monotonic(), count()
            until(
                lambda: work(hub, next(numbers)) or time.monotonic() - began > SECONDS,
                SECONDS * 2, "it has worked", STEP_SECONDS,
            )  # fmt: skip
            end = time.time()
            for board, content in dashboards.CONTENT.items():
                panels = [(each, read_panel(server, each, end)) for each in content["panels"]]
                text = picture(f"Agentlip: {content['title']}", panels)
                (FOLDER / f"dashboard-{board}.svg").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
