"""The files of an image in a release: an archive that loads, and what the image contains."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

import appliance
from ops import image_archives
from ops.release_errors import FAILED, ReleaseError
from tests.system.checkout import CHECKOUT, ROOT

pytestmark = [pytest.mark.container, pytest.mark.slow]
VERSION = f"0.0.0-test-{CHECKOUT}"
TAG = f"agentlip:{VERSION}"


@pytest.fixture(scope="module")
def revision() -> str:
    return subprocess.check_output(["git", "-C", ROOT, "rev-parse", "HEAD"], text=True).strip()


@pytest.fixture(scope="module")
def files(
    engine: docker.DockerClient, image: str, revision: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Path]]:
    folder = tmp_path_factory.mktemp("release")
    yield image_archives.build(ROOT, folder, "agentlip", VERSION, revision, print)
    engine.images.remove(TAG, force=True)


def test_archive_loads_the_image_of_the_commit(
    engine: docker.DockerClient, files: list[Path], revision: str
) -> None:
    made = engine.images.get(TAG).id
    engine.images.remove(TAG)
    archive = next(path for path in files if path.name.endswith(".tar.gz"))
    subprocess.run(["docker", "load", "--quiet", "--input", archive], check=True, timeout=300)
    loaded = engine.images.get(TAG)
    assert loaded.id == made
    assert loaded.labels["org.opencontainers.image.revision"] == revision
    assert loaded.labels["org.opencontainers.image.version"] == appliance.__version__
    architecture = loaded.attrs["Architecture"]
    assert archive.name == f"agentlip-{VERSION}-image-{architecture}.tar.gz"


def test_bill_of_materials_names_the_packages_and_their_licences(files: list[Path]) -> None:
    bill = json.loads(files[1].read_text("utf-8"))
    assert files[1].name == files[0].name.replace(".tar.gz", ".cdx.json")
    assert bill["bomFormat"] == "CycloneDX"
    parts = {each["name"]: each for each in bill["components"]}
    assert parts["falcon"]["licenses"] == [{"expression": "Apache-2.0"}]
    assert "tini" in parts


def test_image_of_another_commit_is_refused(image: str, files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="not of 0000") as refused:
        image_archives.build(ROOT, tmp_path, "agentlip", VERSION, "0000", print)
    assert (refused.value.code, refused.value.exit_code) == ("OTHER_REVISION", FAILED)
    assert list(tmp_path.iterdir()) == []
