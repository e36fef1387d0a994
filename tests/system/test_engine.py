"""What `ops/engine sweep` removes on an engine that several checkouts use."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from tests.system.checkout import ROOT, labels

pytestmark = pytest.mark.container


def test_sweep_removes_only_what_tests_of_its_own_checkout_left(
    engine: docker.DockerClient, image: str, volume: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "ops").mkdir()
    for name in ("engine", "packages.sh"):
        shutil.copy(ROOT / "ops" / name, tmp_path / "ops" / name)
    ours = volume()
    theirs = engine.volumes.create(labels=labels(tmp_path))
    network = engine.networks.create(f"agentlip-{tmp_path.name}", labels=labels(tmp_path))
    container = engine.containers.create(image, labels=labels(tmp_path), network=network.name)
    subprocess.run([tmp_path / "ops/engine", "sweep"], check=True, timeout=60)
    for left in (container, network, theirs):
        with pytest.raises(docker.errors.NotFound):
            left.reload()
    engine.volumes.get(ours)
