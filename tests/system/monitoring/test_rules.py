"""Prometheus's own tool about the shipped rules and configurations."""

import pytest

from tests.system.monitoring.prometheus import RULES, run

pytestmark = pytest.mark.slow


def test_prometheus_loads_every_rule():
    assert run("promtool", "check", "rules", "alerts.yaml", "slo.yaml").count("SUCCESS") == 2


def test_each_alert_fires_with_its_example_and_at_its_severity():
    run("promtool", "test", "rules", "tests.yaml")


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
