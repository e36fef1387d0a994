"""Alerts and dashboards use metrics and labels that exist, and name commands that exist."""

import json
import re
from importlib import import_module

import pytest
import yaml

import appliance
from appliance.kernel.declaring_modules import import_named
from appliance.kernel.metrics import REGISTRY
from ops.monitoring import rules, write
from tests.contract.test_hints import COMMAND, problem
from tests.contract.test_metrics import made
from tests.contract.test_walls import ROOT, tracked

RULES = [ROOT / "ops" / "prometheus" / name for name in ("alerts.yaml", "slo.yaml")]
DASHBOARDS = sorted((ROOT / "ops" / "grafana").glob("*.json"))
WITHOUT = {
    "kernel": "its metrics are those of `process` and `store`",
    "web": "its metrics are those of `http`",
    "mailbox": "its metrics are those of `network`",
    "monitoring": "its metrics are those of `doctor`",
    "operations": "its metrics are those of `notify`",
}
MORE = ("appliance.kernel.store", "appliance.kernel.loop", "appliance.kernel.log_retention",
        "appliance.kernel.feed", "appliance.web.observe", "appliance.web.guard",
        "appliance.web.limits", "appliance.web.connections", "appliance.web.socket",
        "appliance.web.unsent", "appliance.web.worker", "appliance.monitoring.loops",
        "appliance.composition")  # fmt: skip
METRIC = re.compile(r"\b(agentlip_\w+)(\{[^}]*\})?")


def known() -> dict[str, set[str]]:
    """The labels of each metric."""
    for file in tracked("appliance/**/metrics.py"):
        import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
    for name in MORE:
        import_module(name)
    import_named("subsystem", appliance)  # a role that is off declares no facts in a server
    labels: dict[str, set[str]] = {}
    for collector in REGISTRY._collector_to_names:
        for family in getattr(collector, "describe", tuple)():
            names = {*getattr(collector, "_labelnames", ()), *getattr(family, "_labelnames", ())}
            for suffix in ("", "_total", "_bucket", "_count", "_sum"):
                labels[family.name + suffix] = names | {"le"}
    return labels


def expressions() -> list[tuple[str, str]]:
    """(where, expression) of every alert and panel that uses the appliance's metrics."""
    rows = []
    for file in RULES:
        for group in yaml.safe_load(file.read_text())["groups"]:
            rows += [(rule.get("alert", group["name"]), rule["expr"]) for rule in group["rules"]]
    for file in DASHBOARDS:
        for panel in json.loads(file.read_text())["panels"]:
            rows += [(panel["title"], target["expr"]) for target in panel["targets"]]
    return [(where, expression) for where, expression in rows if METRIC.search(expression)]


@pytest.mark.parametrize(("where", "expression"), expressions())
def test_expression_uses_metrics_and_labels_that_exist(where, expression):
    labels, used = known(), METRIC.findall(expression)
    assert used
    for name, selector in used:
        assert name in labels, where
        assert set(re.findall(r"(\w+)!?=", selector)) <= labels[name], where


def test_alerts_name_what_to_do():
    rules = [
        rule
        for file in RULES
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    assert len(rules) > 70
    for rule in rules:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        commands = COMMAND.findall(rule["annotations"]["action"])
        assert commands, rule["alert"]
        assert [each for each in commands if problem(*each)] == []


def test_each_threshold_of_the_hub_specification_has_an_alert():
    numbers = {row["threshold"] for row in rules.CONTENT["alert"] if "threshold" in row}
    assert numbers == set(range(1, 8))


def test_role_that_is_off_fires_no_alert_but_for_backups():
    absent = {row["name"] for row in rules.CONTENT["alert"] if "absent(" in row["expr"]}
    assert absent == {"ApplianceMissing", "BackupMetricsAbsent"}


def test_each_subsystem_that_counts_has_an_alert():
    packages = {package for package, _, _ in made()}
    groups = {row["group"] for row in rules.CONTENT["alert"]}
    assert packages - groups == WITHOUT.keys()


def test_written_files_are_what_slo_and_dashboards_say():
    stale = [name for name, text in write.files().items() if (ROOT / name).read_text() != text]
    assert stale == [], "write them: just monitoring"
