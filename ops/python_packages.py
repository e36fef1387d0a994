"""Builds the source distribution and the wheel: one commit always gives equal bytes."""

import gzip
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

BUILD = "import sys, setuptools.build_meta as backend; getattr(backend, sys.argv[1])(sys.argv[2])"
BUILD_SECONDS_MAX = 300


def version_of(root: Path) -> str:
    """Return the version that everything in this repository has."""
    text = (root / "appliance" / "__init__.py").read_text("utf-8")
    match = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    assert match is not None, "appliance/__init__.py has no __version__"
    return match[1]


def build(tree: Path, target: Path, epoch: int) -> list[Path]:
    """Build the source distribution, and the wheel from it, without network.

    `tree`: the source without generated files. `epoch`: the time for all members, in seconds.
    """
    sdist = _run_backend("build_sdist", tree, target, epoch)
    normalize(sdist, epoch)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder)  # our own; Python 3.11.2 has no filters
        (source,) = Path(folder).iterdir()
        wheel = _run_backend("build_wheel", source, target, epoch)
    return [sdist, wheel]


def _run_backend(step: str, source: Path, target: Path, epoch: int) -> Path:
    before = set(target.iterdir())
    subprocess.run(
        [sys.executable, "-c", BUILD, step, str(target)],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONPATH": ""},
        stdout=subprocess.DEVNULL,
        umask=0o022,  # the wheel records modes
        timeout=BUILD_SECONDS_MAX,
        check=True,
    )
    (made,) = set(target.iterdir()) - before
    return made


def normalize(sdist: Path, epoch: int) -> None:
    """Sort the members and remove the build machine's times, owners and modes."""
    packed = io.BytesIO()
    with (
        tarfile.open(sdist) as old,
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=epoch) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = epoch
            member.pax_headers = {}
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    sdist.write_bytes(packed.getvalue())
