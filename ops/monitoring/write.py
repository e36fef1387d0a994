"""Writes the monitoring files in ops/ from slo.toml and dashboards.toml: `just monitoring`."""

import sys

import yaml

from ops import generated
from ops.monitoring import dashboards, rules, runbook

RULES = "ops/prometheus"
GRAFANA = "ops/grafana"
HEAD = "# Written by `just monitoring` from ops/monitoring. Not edited by hand.\n"


def files() -> dict[str, str]:
    """Return the text by path from the root folder."""
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


if __name__ == "__main__":
    sys.exit(generated.write(files()))
