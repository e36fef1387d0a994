"""Every way to install with containers, with the commands of the README, from nothing.

The names, ports and addresses are replaced, so a container of the user is not touched. Podman's
service is started with the flags that Podman makes from it, by the engine that is there.
"""

import configparser
import json
import os
import re
import shlex
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import docker
import pytest
import yaml

from tests.contract.test_quadlet import FLAGS
from tests.support.installs import blocks
from tests.support.until import until
from tests.system.checkout import LABELS, ROOT, SUBNET

pytestmark = [pytest.mark.container, pytest.mark.slow]
SECONDS_MAX = 300


def shell(script: str, **more: str) -> str:
    done = subprocess.run(
        ["bash", "-eu", "-c", script], cwd=ROOT, env={**os.environ, **more}, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def address(container: Any) -> str:
    """The address at which it answers, which is on this machine only."""

    def answers() -> str:
        container.reload()
        ((binding,),) = (container.ports.get("7464/tcp") or [None],)
        if binding is None:
            return ""
        assert binding["HostIp"] == "127.0.0.1"
        url = f"http://127.0.0.1:{binding['HostPort']}"
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
        except OSError:
            return ""
        return url

    return until(answers, what="an answer from /health")


def require_token(container: Any, token: str) -> None:
    headers = {"Authorization": f"Bearer {token.strip()}"}
    request = urllib.request.Request(f"{address(container)}/api/v1/channels", headers=headers)
    with urllib.request.urlopen(request, timeout=30) as reply:
        assert "channels" in json.load(reply)


@pytest.fixture
def name(engine: docker.DockerClient) -> Iterator[str]:
    """A name for a container, which is removed with its volume of the same name."""
    made = f"agentlip-test-{uuid4().hex[:12]}"
    engine.volumes.create(made, labels=LABELS)
    yield made
    for container in engine.containers.list(all=True, filters={"name": made}):
        container.remove(force=True)
    engine.volumes.get(made).remove(force=True)


def test_documented_docker_commands_start_appliance(
    engine: docker.DockerClient, image: str, name: str
) -> None:
    commands = blocks()["docker"].splitlines()
    assert commands.pop(0) == "ops/image"
    script = "\n".join(commands).replace("agentlip:local", image).replace("7464:7464", "0:7464")
    script = script.replace("--name agentlip -v agentlip:", f"--name {name} -v {name}:")
    script = script.replace("exec agentlip ", f"exec {name} ")
    # The commands of a person come after the container has started.
    start, *rest = script.splitlines()
    shell(start)
    address(engine.containers.get(name))
    output = shell("\n".join(rest))
    assert "created channel" in output
    require_token(engine.containers.get(name), output.splitlines()[-1])


@pytest.fixture
def composed(image: str, name: str, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Runs a command of the README with a copy of the Compose file."""
    content = yaml.safe_load((ROOT / "ops/compose.yaml").read_text("utf-8"))
    appliance = content["services"]["appliance"]
    appliance |= {"image": image, "ports": ["127.0.0.1:0:7464"], "volumes": [f"{name}:/data"]}
    appliance["networks"]["front"]["ipv4_address"] = f"{SUBNET}.2"
    content["networks"]["front"]["ipam"]["config"] = [{"subnet": f"{SUBNET}.0/24"}]
    content["volumes"] = {name: {"external": True}}
    del appliance["build"]
    content["services"] = {"appliance": appliance}
    file = tmp_path / "compose.yaml"
    file.write_text(yaml.safe_dump(content))

    def run(command: str) -> str:
        return shell(command.replace("compose", f"compose -f {file} -p {name}", 1))

    yield run
    run("ops/engine compose down")


def test_documented_compose_commands_start_appliance(
    engine: docker.DockerClient, composed: Callable[[str], str], name: str
) -> None:
    build, up, token = blocks()["compose"].splitlines()
    assert build == "ops/image"
    composed(up)
    (container,) = engine.containers.list(filters={"label": f"com.docker.compose.project={name}"})
    address(container)
    require_token(container, composed(token))


def test_documented_quadlet_starts_appliance(
    engine: docker.DockerClient, image: str, name: str
) -> None:
    commands = blocks()["quadlet"].splitlines()
    file = next(re.findall(r"cp (\S+)", line)[0] for line in commands if line.startswith("cp "))
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / file)
    keys = dict(unit["Container"])
    assert f"-t {keys.pop('Image')} ." in commands[0]
    keys |= {"ContainerName": name, "Volume": f"{name}:/data"}
    keys["HealthInterval"] = "1s"
    keys["PublishPort"] = keys["PublishPort"].replace("7464:7464", "0:7464")
    flags = [FLAGS[key](value) for key, value in keys.items()]
    shell(f"docker run -d {' '.join(flags)} {shlex.quote(image)}")
    container = engine.containers.get(name)
    address(container)
    require_token(
        container, shell(commands[-1].replace("podman exec agentlip", f"docker exec {name}"))
    )

    def healthy() -> bool:
        container.reload()
        return bool(container.attrs["State"]["Health"]["Status"] == "healthy")

    until(healthy, what="the health check of the file succeeds")
