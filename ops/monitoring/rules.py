"""Renders the Prometheus rules, scrape configuration and tests from slo.toml."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

Row = dict[str, Any]
CONTENT: Row = tomllib.loads((Path(__file__).parent / "slo.toml").read_text("utf-8"))
PREFIX = "Agentlip"
BURN = "ErrorBudgetBurning"
SEVERITIES = ("warning", "critical")
RATIO = "agentlip:slo_error_ratio:rate"
EVENTS = "agentlip:slo_events:increase1h"
INSTANCE = 'instance="a:7464",job="agentlip"'
TEST_MINUTES = 20  # after an alert's wait; examples exceed the limit from the first minute
MINUTES = {"s": 1 / 60, "m": 1, "h": 60}


class Alert(NamedTuple):
    """One rule. `fires`: the series in its test."""

    name: str
    group: str
    severity: str
    expr: str
    wait: str
    row: Row
    fires: list[str]

    @property
    def rule(self) -> Row:
        annotations = {key: self.row[key] for key in ("summary", "action")}
        annotations["runbook_url"] = f"{CONTENT['runbook']['url']}#{self.name.lower()}"
        if "threshold" in self.row:
            annotations["threshold"] = f"hub specification 6.5, threshold {self.row['threshold']}"
        return {
            "alert": self.name,
            "expr": self.expr,
            **({"for": self.wait} if self.wait else {}),
            "labels": {"severity": self.severity, "subsystem": self.group},
            "annotations": annotations,
        }


def alerts() -> list[Alert]:
    """Return the alerts in slo.toml, one per severity, without the objectives' alerts."""
    rows = []
    for row in CONTENT["alert"]:
        limits = row.get("limits", {row.get("severity"): ""})
        for severity, limit in limits.items():
            expr = row["expr"].replace("LIMIT", limit)
            fires = row["fires"][severity] if "limits" in row else row["fires"]
            wait = row.get("for", "")
            name = PREFIX + row["name"]
            rows.append(Alert(name, row["group"], severity, expr, wait, row, fires))
    return rows


def alert_rules() -> Row:
    groups: dict[str, list[Row]] = {}
    for alert in alerts():
        groups.setdefault(alert.group, []).append(alert.rule)
    return {
        "groups": [{"name": f"agentlip-{name}", "rules": rules} for name, rules in groups.items()]
    }


def slo_rules() -> Row:
    """Return each objective's error ratio per window, and alerts about how fast the error budget
    is used up, each in a long and a short window."""
    windows = CONTENT["burn"]["windows"]
    spans = dict.fromkeys(window[kind] for window in windows for kind in ("short", "long"))
    records, burning = [], []
    for objective in CONTENT["objective"]:
        recorded = {RATIO + span: _ratio(objective, span) for span in spans}
        recorded[EVENTS] = f"sum by (instance) (increase({objective['total']}[1h]))"
        records += [
            {"record": name, "expr": expr, "labels": {"slo": objective["name"]}}
            for name, expr in recorded.items()
        ]
        burning += [_burn_rule(objective, window) for window in windows]
    return {
        "groups": [
            {"name": "agentlip-slo-records", "rules": records},
            {"name": "agentlip-slo", "rules": burning},
        ]
    }


def _ratio(objective: Row, span: str) -> str:
    total = f"sum by (instance) (rate({objective['total']}[{span}]))"
    if "good" in objective:
        return f"1 - sum by (instance) (rate({objective['good']}[{span}])) / {total}"
    # Without a bad event the counter has no series yet.
    bad = f"sum by (instance) (rate({objective['bad']}[{span}]))"
    return f"({bad} or 0 * {total}) / {total}"


def _burn_rule(objective: Row, window: Row) -> Row:
    name, limit = objective["name"], window["factor"] * (1 - objective["target"])
    over = [f'{RATIO}{window[kind]}{{slo="{name}"}} > {limit:.6g}' for kind in ("long", "short")]
    enough = f'{EVENTS}{{slo="{name}"}} > {objective["events_min"]}'
    return {
        "alert": PREFIX + BURN,
        "expr": " and ".join([*over, enough]),
        "labels": {
            "severity": window["severity"],
            "subsystem": "slo",
            "slo": name,
            "window": window["long"],
        },
        "annotations": {
            "summary": f"{{{{ $labels.instance }}}} misses its objective of {name}:"
            f" {{{{ $value | humanizePercentage }}}} failed in {window['long']}",
            "action": "agentlip doctor",
            "runbook_url": f"{CONTENT['runbook']['url']}#{(PREFIX + BURN).lower()}",
        },
    }


def scrape_configuration() -> Row:
    scrape = CONTENT["scrape"]
    probes = {
        "job_name": "agentlip-tls",
        "metrics_path": "/probe",
        "params": {"module": ["http_2xx"]},
        "static_configs": [{"targets": scrape["probed"]}],
        "relabel_configs": [
            {"source_labels": ["__address__"], "target_label": "__param_target"},
            {"source_labels": ["__param_target"], "target_label": "instance"},
            {"target_label": "__address__", "replacement": scrape["prober"]},
        ],
    }
    appliance = {
        "job_name": "agentlip",
        "authorization": {"credentials_file": scrape["token_file"]},
        "static_configs": [{"targets": scrape["targets"]}],
    }
    return {
        "global": {
            "scrape_interval": scrape["interval"],
            "evaluation_interval": scrape["interval"],
        },
        "rule_files": ["alerts.yaml", "slo.yaml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": scrape["alertmanagers"]}]}]},
        "scrape_configs": [appliance, probes],
    }


# -- tests for promtool ----------------------------------------------------------------------------


def rule_tests() -> Row:
    """Return tests: each alert fires with its example, and a higher severity does not."""
    return {
        "rule_files": ["alerts.yaml", "slo.yaml"],
        "evaluation_interval": "5m",  # the longest test has 73 hours
        "tests": [*map(_test_of, alerts()), *_burn_tests()],
    }


def _test_of(alert: Alert) -> Row:
    at = alert.row.get("at") or _time_of_test(alert.wait)
    checks = [_firing(alert.name, alert.severity, at, fires=True)]
    if alert.severity == "warning" and "critical" in alert.row.get("limits", {}):
        checks.append(_firing(alert.name, "critical", at, fires=False))
    return {
        "name": f"{alert.name} {alert.severity}",
        "interval": "1m",
        "input_series": [_series(example) for example in alert.fires],
        "promql_expr_test": checks,
    }


def _time_of_test(wait: str) -> str:
    minutes = float(wait[:-1]) * MINUTES[wait[-1]] if wait else 0
    return f"{TEST_MINUTES + round(minutes)}m"


def _burn_tests() -> Iterator[Row]:
    """Yield tests in which a quarter of all events fails: an alert fires within minutes."""
    for objective in CONTENT["objective"]:
        total, part = objective["total"], objective.get("bad") or objective["good"]
        rates = {total: 400, part: 300 if "good" in objective else 100}
        yield {
            "name": f"{BURN} {objective['name']}",
            "interval": "1m",
            "input_series": [
                _series(f"{_exact(selector)} 0+{rate}x240") for selector, rate in rates.items()
            ],
            "promql_expr_test": [
                _firing(PREFIX + BURN, "critical", _time_of_test(""), fires=True, window="1h"),
            ],
        }


def _exact(selector: str) -> str:
    """Return a series that the selector matches."""
    for pattern, value in ((r'=~"(\w+)\.\."', r'="\g<1>03"'), (r'!~"[^"]*"', '="/mcp"')):
        selector = re.sub(pattern, value, selector)
    return selector.replace("!=", "=").replace("sse", "http")


def _series(example: str) -> Row:
    series, _, values = example.partition(" ")
    name, _, labels = series.partition("{")
    labels = ",".join(filter(None, [labels.rstrip("}"), INSTANCE]))
    return {"series": f"{name}{{{labels}}}", "values": values}


def _firing(name: str, severity: str, at: str, *, fires: bool, **labels: str) -> Row:
    more = "".join(f',{key}="{value}"' for key, value in labels.items())
    selector = f'alertname="{name}",severity="{severity}",alertstate="firing"{more}'
    return {
        "expr": f"count(ALERTS{{{selector}}}) > bool 0",
        "eval_time": at,
        "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
    }
