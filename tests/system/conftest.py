"""The image, built once a run, and containers and volumes that are gone afterwards."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from tests.system.box import Box

ROOT = Path(__file__).parents[2]
LABEL = "agentlip.test"


@pytest.fixture(scope="session")
def engine() -> docker.DockerClient:
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "version"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no container engine answers; run: ops/engine")
    return docker.from_env()


@pytest.fixture(scope="session")
def image(engine: docker.DockerClient) -> str:
    built = subprocess.run(
        [ROOT / "ops/image", "agentlip:test"], stdout=subprocess.PIPE, text=True, check=True
    )
    return built.stdout.strip()


@pytest.fixture
def volume(engine: docker.DockerClient) -> Iterator[Callable[..., str]]:
    """Makes volumes: `volume()` an ordinary one, `volume(size="48m")` one that fills up."""
    made = []

    def make(size: str | None = None) -> str:
        options = None
        if size:
            what = f"size={size},uid=10001,gid=10001,mode=0750"
            options = {"type": "tmpfs", "device": "tmpfs", "o": what}
        made.append(engine.volumes.create(driver_opts=options, labels={LABEL: "1"}))
        return str(made[-1].name)

    yield make
    for each in made:
        each.remove(force=True)


@pytest.fixture
def box(image: str, volume: Callable[..., str]) -> Iterator[Callable[..., Box]]:
    """Makes containers; they go before their volumes do."""
    made: list[Box] = []

    def make(volume: str, *words: str, **more: object) -> Box:
        made.append(Box(image, volume, *words, **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        each.remove()
