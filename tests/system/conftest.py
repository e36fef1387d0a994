"""The images, built once a run, and containers and volumes that are gone afterwards."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from tests.system.box import Box
from tests.system.checkout import CHECKOUT, LABELS, ROOT
from tests.system.spark_containers import SparkContainers

ADDRESSES = {
    "IMAGE_SOURCE": "https://example.org/agentlip",
    "IMAGE_DOCUMENTATION": "https://example.org/agentlip/docs",
}


@pytest.fixture(scope="session")
def engine() -> docker.DockerClient:
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "version"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no container engine answers; run: ops/engine")
    return docker.from_env()


def build(*arguments: str, **settings: str) -> str:
    """The tag of an image that ops/image builds."""
    command = [ROOT / "ops/image", *arguments]
    return subprocess.check_output(command, text=True, env=os.environ | settings).strip()


@pytest.fixture(scope="session")
def image(engine: docker.DockerClient) -> str:
    return build(f"agentlip:test-{CHECKOUT}", **ADDRESSES)


@pytest.fixture(scope="session")
def export_image(engine: docker.DockerClient) -> str:
    return build("--export", f"agentlip-export:test-{CHECKOUT}", **ADDRESSES)


@pytest.fixture
def volume(engine: docker.DockerClient) -> Iterator[Callable[..., str]]:
    """Makes volumes: `volume()` an ordinary one, `volume(size="48m")` one that fills up."""
    made = []

    def make(size: str | None = None) -> str:
        options = None
        if size:
            what = f"size={size},uid=10001,gid=10001,mode=0750"
            options = {"type": "tmpfs", "device": "tmpfs", "o": what}
        made.append(engine.volumes.create(driver_opts=options, labels=LABELS))
        return str(made[-1].name)

    yield make
    for each in made:
        each.remove(force=True)


@pytest.fixture
def box(image: str, volume: Callable[..., str]) -> Iterator[Callable[..., Box]]:
    """Makes containers; they go before their volumes do."""
    yield from boxes(image)


@pytest.fixture
def export_box(export_image: str, volume: Callable[..., str]) -> Iterator[Callable[..., Box]]:
    """Makes containers of the image with Parquet."""
    yield from boxes(export_image)


def boxes(image: str) -> Iterator[Callable[..., Box]]:
    made: list[Box] = []

    def make(volume: str, *words: str, **more: object) -> Box:
        made.append(Box(image, volume, *words, **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        each.remove()


@pytest.fixture(scope="session")
def spark_image(engine: docker.DockerClient) -> str:
    return build("--spark", f"agentlip-spark:test-{CHECKOUT}", **ADDRESSES)


@pytest.fixture(scope="session")
def spark_storage_image(engine: docker.DockerClient) -> str:
    """The Spark jobs with object storage."""
    return build("--spark-s3", f"agentlip-spark-s3:test-{CHECKOUT}", **ADDRESSES)


@pytest.fixture
def jobs(spark_image: str, tmp_path: Path) -> Iterator[SparkContainers]:
    made = SparkContainers(spark_image, tmp_path)
    yield made
    made.remove()
