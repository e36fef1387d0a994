"""A real Prometheus scrapes a real appliance at work: panels have data, and no alert fires."""

import re
from itertools import count

import pytest
import yaml

from ops.monitoring import dashboards, rules
from tests.doctor.used import fill_mesh
from tests.support.servedhub import serve
from tests.support.until import until
from tests.system.monitoring.prometheus import RULES, Prometheus, run, started
from tests.system.monitoring.workload import work

pytestmark = pytest.mark.slow
PANELS = [
    pytest.param(panel, id=f"{name}: {panel['title']}")
    for name, board in dashboards.CONTENT.items()
    for panel in board["panels"]
]
SINGLE = re.compile(r"increase\((agentlip_\w+)(\{[^}]*\})?\[\w+\]\)\)? > 0")
"""Alerts about a single event."""
LATER = {"agentlip_export_log_missing_rows_total"}  # the first export makes its series
TIME = re.compile(r"^(\w+_timestamp_seconds|process_start_time_seconds)\b")
REAL_TIME = 1e9  # values above are times of today; those of a test begin at 0


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("monitored"), "--no-limits") as hub:
        yield hub


@pytest.fixture(scope="module")
def fresh(hub):
    """The series of an appliance that nobody used yet, after each loop has run."""
    names = {"agentlip_backup_enabled", "agentlip_export_waiting_events"}
    until(lambda: names <= {line.split(" ")[0] for line in lines(hub)}, 60, "loops have run")
    return lines(hub)


def lines(hub):
    text = hub.http.get("/metrics").raw.decode()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def prometheus(hub, fresh, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prometheus")
    targets = {"agentlip": (hub.port, hub.token)}
    server = Prometheus(folder, rules.slo_rules(), targets)
    with started(server.command, server.port, folder / "log"):
        until(lambda: server.query('up{job="agentlip"} == 1'), 60, "it scrapes")
        rates = "rate(agentlip_feed_items_total[5m]) > 0 and agentlip_bus_stored_messages > 0"
        fill_mesh(hub)
        numbers = count()
        until(lambda: work(hub, next(numbers)) or server.query(rates), 60, "rates", 0.5)
        yield server


@pytest.mark.parametrize("panel", PANELS)
def test_panel_has_data_or_a_reason(prometheus, panel):
    results = prometheus.query(panel["expr"])
    assert results or panel.get("empty"), "give the reason as `empty`"


def test_counters_of_single_events_begin_with_zero(fresh):
    counters = {each for alert in rules.alerts() for each in SINGLE.findall(alert.expr)}
    missing = {
        name
        for name, selector in counters
        if not any(line.startswith(name) and selector.strip("{}") in line for line in fresh)
    }
    assert missing == LATER


def test_fresh_appliance_has_no_alert_for_30_minutes(fresh, tmp_path):
    series = [*map(constant, fresh), rules._series("up 1+0x40")]
    checks = [
        {"expr": "ALERTS", "eval_time": f"{minute}m", "exp_samples": []} for minute in range(31)
    ]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": checks}
    files = [str(RULES / name) for name in ("alerts.yaml", "slo.yaml")]
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": files, "tests": [test]}))
    run("promtool", "test", "rules", file)


def constant(line):
    """The series with one value for 40 minutes; times are those of a process started just now."""
    series, _, value = line.rpartition(" ")
    if TIME.match(series) and float(value) > REAL_TIME:
        value = "0"
    return rules._series(f"{series} {float(value):f}+0x40".replace("inf", "1e300"))
