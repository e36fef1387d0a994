"""Writes what ops/ ships for monitoring from slo.toml and dashboards.toml: `just monitoring`.

With --check it writes nothing, and fails if a file is stale.
"""

import sys
from pathlib import Path

import yaml

from ops.monitoring import dashboards, rules, runbook

ROOT = Path(__file__).parents[2]
RULES = "ops/prometheus"
GRAFANA = "ops/grafana"
HEAD = "# Written by `just monitoring` from ops/monitoring. Not edited by hand.\n"


def files() -> dict[str, str]:
    """Path from the root of the tree → text."""
    contents = {
        f"{RULES}/prometheus.yaml": rules.scrape_configuration(),
        f"{RULES}/alerts.yaml": rules.alert_rules(),
        f"{RULES}/slo.yaml": rules.slo_rules(),
        f"{RULES}/tests.yaml": rules.rule_tests(),
        f"{GRAFANA}/provisioning/dashboards/agentlip.yaml": dashboards.PROVIDER,
        f"{GRAFANA}/provisioning/datasources/agentlip.yaml": dashboards.DATA_SOURCES,
    }
    return {
        **{
            name: HEAD + yaml.safe_dump(content, sort_keys=False, width=1000)
            for name, content in contents.items()
        },
        **{f"{GRAFANA}/{name}": text for name, text in dashboards.dashboards().items()},
        "docs/how-to/runbook.md": runbook.page(),
    }


def main() -> int:
    stale = []
    for name, text in files().items():
        file = ROOT / name
        if file.is_file() and file.read_text("utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
    for name in stale:
        print(name)
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
