"""Prometheus's own tool about the shipped rules and configurations."""

import json

import pytest

from ops.monitoring import rules
from tests.system.monitoring.prometheus import RULES, run

pytestmark = pytest.mark.slow


def test_prometheus_loads_every_rule():
    assert run("promtool", "check", "rules", "alerts.yaml", "slo.yaml").count("SUCCESS") == 2


def test_each_alert_fires_with_its_example_and_at_its_severity():
    run("promtool", "test", "rules", "tests.yaml")


def test_idle_appliance_burns_no_error_budget(tmp_path):
    """On a slow disk, and with a probe that gets 503: its own loops write 17 times a minute."""
    alert = f'ALERTS{{alertname="{rules.PREFIX}{rules.BURN}"}}'
    rates = {
        'agentlip_http_responses_total{route="/metrics",status="200"}': 4,
        'agentlip_http_responses_total{route="/-/ready",status="503"}': 6,
        "agentlip_store_batch_seconds_count": 17,
        'agentlip_store_batch_seconds_bucket{le="0.25"}': 8,
    }
    series = [{"series": name, "values": f"0+{rate}x240"} for name, rate in rates.items()]
    check = {"expr": alert, "eval_time": "4h", "exp_samples": []}
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [check]}
    content = {"rule_files": [str(RULES / "slo.yaml")], "tests": [test]}
    file = tmp_path / "tests.yaml"
    file.write_text(json.dumps(content | {"evaluation_interval": "5m"}))
    run("promtool", "test", "rules", file)


def test_prometheus_accepts_the_configuration(tmp_path):
    text = (RULES / "prometheus.yaml").read_text()
    (tmp_path / "token").write_text("secret")
    for name in ("alerts.yaml", "slo.yaml"):
        (tmp_path / name).symlink_to(RULES / name)
    file = tmp_path / "prometheus.yaml"
    file.write_text(text.replace("/etc/prometheus/scrape-token", str(tmp_path / "token")))
    run("promtool", "check", "config", file)


def test_alertmanager_accepts_the_example():
    assert "SUCCESS" in run("amtool", "check-config", "alertmanager.yaml")
