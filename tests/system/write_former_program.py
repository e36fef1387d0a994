"""Writes the program of an old commit, for the tests of upgrades with its image.

    python -m tests.system.write_former_program COMMIT

The installed package of that commit becomes `former/COMMIT.tar.xz`, in place of the one that is
there. Run it after each release, with its commit. It needs the history; the tests need only the
file.
"""

import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from ops import python_packages, release

FORMER = Path(__file__).parent / "former"


def main(commit: str) -> None:
    name, epoch = release.git(release.ROOT, "log", "-1", "--format=%h %ct", commit).split()
    with tempfile.TemporaryDirectory() as scratch:
        tree, built = Path(scratch) / "tree", Path(scratch) / "built"
        tree.mkdir()
        built.mkdir()
        release.export(release.ROOT, commit, tree)
        _, wheel = python_packages.build(tree, built, int(epoch))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch)
        for old in FORMER.glob("*.tar.xz"):
            old.unlink()
        with tarfile.open(FORMER / f"{name}.tar.xz", "w:xz") as archive:
            archive.add(Path(scratch) / "agentlip", "agentlip", filter=_without_owner)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main(*sys.argv[1:])
