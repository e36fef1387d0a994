"""The service file for Podman: only keys that Podman 4.6 knows, and the limits of Compose."""

import shlex
from collections.abc import Callable

import pytest
import yaml

from tests.contract.test_walls import ROOT
from tests.support.units import unit_sections

FILES = ("agentlip", "agentlip-spark")


def option(flag: str) -> Callable[[str], str]:
    return lambda value: f"{flag} {shlex.quote(value)}"


# The keys of [Container] in the manual of Podman 4.6, and the flag of `podman run` for each.
FLAGS: dict[str, Callable[[str], str]] = {
    "AddCapability": option("--cap-add"),
    "ContainerName": option("--name"),
    "DropCapability": option("--cap-drop"),
    "Environment": lambda value: f"--env {value}",  # quoted for systemd as for a shell
    "EnvironmentFile": option("--env-file"),
    "Exec": lambda value: value,
    "HealthCmd": option("--health-cmd"),
    "HealthInterval": option("--health-interval"),
    "HealthRetries": option("--health-retries"),
    "HealthStartPeriod": option("--health-start-period"),
    "HealthTimeout": option("--health-timeout"),
    "Network": option("--network"),
    "NoNewPrivileges": lambda _: "--security-opt no-new-privileges",
    "PodmanArgs": lambda value: value,
    "PublishPort": option("--publish"),
    "ReadOnly": lambda _: "--read-only",
    "Secret": option("--secret"),
    "Tmpfs": option("--tmpfs"),
    "User": option("--user"),
    "Volume": option("--volume"),
}
SERVICE = {"Restart", "TimeoutStartSec", "TimeoutStopSec"}


def sections(name: str = "agentlip") -> dict[str, dict[str, list[str]]]:
    file = ROOT / "ops/quadlet" / f"{name}.container"
    return unit_sections(file.read_text("utf-8"))


@pytest.mark.parametrize("name", FILES)
def test_every_key_is_known_to_podman_and_systemd(name: str) -> None:
    parts = sections(name)
    assert set(parts) == {"Unit", "Container", "Service", "Install"}
    assert set(parts["Container"]) - {"Image", "Group"} <= set(FLAGS)
    assert set(parts["Service"]) <= SERVICE
    assert parts["Install"] == {"WantedBy": ["default.target"]}
    assert parts["Container"]["Image"] == [f"localhost/{name}:local"]


def test_quadlet_has_limits_of_compose_file() -> None:
    container = sections()["Container"]
    compose = yaml.safe_load((ROOT / "ops/compose.yaml").read_text("utf-8"))
    appliance = compose["services"]["appliance"]
    assert container["PublishPort"] == appliance["ports"]
    assert [each.lower() for each in container["DropCapability"]] == ["all"]
    assert (container["ReadOnly"], container["NoNewPrivileges"]) == (["true"], ["true"])
    assert container["Tmpfs"] == appliance["tmpfs"]
    assert container["Volume"] == [f"agentlip_{volume}" for volume in appliance["volumes"]]
    variable, _, value = container["Environment"][0].strip("'").partition("=")
    assert value == appliance["environment"][variable]
    assert container["PodmanArgs"] == [
        f"--memory={appliance['mem_limit']} --pids-limit={appliance['pids_limit']}"
        f" --stop-timeout={appliance['stop_grace_period'].removesuffix('s')}"
    ]


def test_spark_has_what_it_has_with_compose() -> None:
    container = sections("agentlip-spark")["Container"]
    compose = yaml.safe_load((ROOT / "ops/compose.yaml").read_text("utf-8"))
    spark = compose["services"]["spark"]
    *shared, scratch = spark["volumes"]
    assert container["Volume"] == [*(f"agentlip_{volume}" for volume in shared), scratch]
    assert container["Exec"] == [" ".join(spark["command"])]
    assert container["User"] + container["Group"] == spark["user"].split(":")
