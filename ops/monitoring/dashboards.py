"""Renders the Grafana dashboards from dashboards.toml: an overview, and one per subsystem."""

import json
import tomllib
from pathlib import Path

from ops.monitoring.rules import Row

CONTENT: dict[str, Row] = tomllib.loads(
    (Path(__file__).parent / "dashboards.toml").read_text("utf-8")
)
COLUMNS, WIDTH, HEIGHT = 3, 8, 7
SCHEMA = 39  # written by Grafana 11
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
VARIABLE = {"name": "datasource", "label": "Data source", "type": "datasource",
            "query": "prometheus"}  # fmt: skip
PROVIDER = {
    "apiVersion": 1,
    "providers": [
        {
            "name": "agentlip",
            "folder": "Agentlip",
            "type": "file",
            "options": {"path": "/var/lib/grafana/dashboards"},
        }
    ],
}
DATA_SOURCES = {
    "apiVersion": 1,
    "datasources": [
        {
            "name": "Prometheus",
            "type": "prometheus",
            "access": "proxy",
            "url": "http://prometheus:9090",
            "isDefault": True,
        }
    ],
}


def dashboards() -> dict[str, str]:
    """Return JSON by file name, with one line per panel."""
    return {f"{name}.json": _text(_dashboard(name, row)) for name, row in CONTENT.items()}


def _text(dashboard: Row) -> str:
    panels = ",\n  ".join(json.dumps(panel) for panel in dashboard.pop("panels"))
    head = json.dumps(dashboard, indent=1)
    return f'{head.removesuffix("}").rstrip()},\n "panels": [\n  {panels}\n ]\n}}\n'


def _dashboard(name: str, row: Row) -> Row:
    return {
        "title": f"Agentlip: {row['title']}",
        "uid": f"agentlip-{name}",
        "tags": ["agentlip"],
        "schemaVersion": SCHEMA,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "links": [{"type": "dashboards", "tags": ["agentlip"], "title": "Agentlip",
                   "asDropdown": True}],
        "templating": {"list": [VARIABLE]},
        "panels": [_panel(index, panel) for index, panel in enumerate(row["panels"])],
    }  # fmt: skip


def _panel(index: int, panel: Row) -> Row:
    return {
        "id": index + 1,
        "title": panel["title"],
        "description": f"Without data: {panel['empty']}." if "empty" in panel else "",
        "type": "stat" if panel.get("number") else "timeseries",
        "datasource": SOURCE,
        "gridPos": {
            "h": HEIGHT,
            "w": WIDTH,
            "x": index % COLUMNS * WIDTH,
            "y": index // COLUMNS * HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel["unit"]}, "overrides": []},
        "targets": [{"refId": "A", "expr": panel["expr"], "legendFormat": panel["legend"]}],
    }
