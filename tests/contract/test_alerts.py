"""Alerts and dashboards use metrics and labels that exist, and name commands that exist."""

import json
import re
from importlib import import_module

import pytest
import yaml

from appliance.kernel.metrics import REGISTRY
from tests.contract.test_hints import COMMAND, problem
from tests.contract.test_walls import ROOT

RULES = sorted((ROOT / "ops" / "prometheus").glob("*.yaml"))
DASHBOARDS = sorted((ROOT / "ops" / "grafana").glob("*.json"))
METRIC = re.compile(r"\b(agentlip_\w+)(\{[^}]*\})?")


def known() -> dict[str, set[str]]:
    """The labels of each metric."""
    for name in ("backup", "broker", "courier", "export", "hooks", "hub", "jobs", "outbox"):
        import_module(f"appliance.{name}.metrics")
    labels: dict[str, set[str]] = {}
    for collector, names in REGISTRY._collector_to_names.items():
        for name in names:
            labels[name] = set(getattr(collector, "_labelnames", ()))
    return labels


def expressions() -> list[tuple[str, str]]:
    """(where, expression) of every alert and every panel."""
    rows = []
    for file in RULES:
        for group in yaml.safe_load(file.read_text())["groups"]:
            rows += [(rule["alert"], rule["expr"]) for rule in group["rules"]]
    for file in DASHBOARDS:
        for panel in json.loads(file.read_text())["panels"]:
            rows += [(panel["title"], target["expr"]) for target in panel["targets"]]
    return rows


@pytest.mark.parametrize(("where", "expression"), expressions())
def test_expression_uses_metrics_and_labels_that_exist(where, expression):
    labels = known()
    metrics = METRIC.findall(expression)
    assert metrics, where
    for name, selector in metrics:
        assert name in labels, where
        assert set(re.findall(r"(\w+)=", selector)) <= labels[name], where


def test_alerts_name_what_to_do():
    names = []
    for file in RULES:
        for group in yaml.safe_load(file.read_text())["groups"]:
            for rule in group["rules"]:
                names.append(rule["alert"])
                assert rule["labels"]["severity"] in ("warning", "critical")
                assert rule["annotations"]["summary"]
                commands = COMMAND.findall(rule["annotations"]["action"])
                assert commands, rule["alert"]
                assert [each for each in commands if problem(*each)] == []
    assert len(set(names)) == len(names) > 0
