"""Images of a release as archives for `docker load`, each with its software bill of materials."""

import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ops.release_errors import FAILED, ReleaseError

IMAGES = {"agentlip": [], "agentlip-export": ["--export"], "agentlip-spark": ["--spark"]}
"""Each image's name, and what selects it in ops/image."""
REVISION_LABEL = "org.opencontainers.image.revision"
BUILD_SECONDS_MAX = 3600


def build(
    root: Path, target: Path, name: str, version: str, revision: str, say: Callable[[str], None]
) -> list[Path]:
    """The files of one image: its archive and, from ops/sbom.py, its bill of materials."""
    tag = f"{name}:{version}"
    say(f"building the image {tag}")
    _output(root, str(root / "ops/image"), *IMAGES[name], tag)
    (image,) = json.loads(_output(root, "docker", "image", "inspect", tag))
    architecture = image["Architecture"]
    built = (image["Config"]["Labels"] or {}).get(REVISION_LABEL, "unknown")
    if built != revision:
        raise ReleaseError(
            "OTHER_REVISION",
            f"the image {tag} is of commit {built}, not of {revision}",
            f"ops/image {tag}",
            FAILED,
        )
    archive = target / f"{name}-{version}-image-{architecture}.tar.gz"
    say(f"writing {archive.name}")
    _save(tag, archive)
    bill = target / f"{name}-{version}-image-{architecture}.cdx.json"
    say(f"writing {bill.name}")
    _output(root, sys.executable, "-m", "ops.sbom", tag, str(bill.absolute()))
    return [archive, bill]


def _save(tag: str, archive: Path) -> None:
    with (
        subprocess.Popen(["docker", "save", tag], stdout=subprocess.PIPE) as saving,
        archive.open("wb") as file,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as compressed,
    ):
        assert saving.stdout is not None
        shutil.copyfileobj(saving.stdout, compressed, 1 << 20)
    if saving.returncode:
        raise ReleaseError(
            "NOT_SAVED", f"docker save {tag} failed", f"docker save {tag} >/dev/null", FAILED
        )


def _output(root: Path, *command: str) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=root,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS_MAX,
            check=False,
        )
    except FileNotFoundError:
        raise ReleaseError(
            "NO_ENGINE",
            f"{command[0]} is not installed",
            "ops/engine, or build without images: ops/release build --images none",
            FAILED,
        ) from None
    if done.returncode:
        last = "\n".join(done.stderr.splitlines()[-5:])
        raise ReleaseError(
            "IMAGE_FAILED", f"{' '.join(command)} failed: {last}", "ops/engine", FAILED
        )
    return done.stdout
