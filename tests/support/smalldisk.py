"""A small file system of its own, which a test can fill to the last byte. Needs root."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

MIB = 1024 * 1024


class SmallDisk:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._ballast = root / "ballast"

    def fill(self) -> None:
        """No space is free afterwards, not even space that was freed meanwhile."""
        for size in (MIB, 4096, 1):
            with suppress(OSError), self._ballast.open("ab", buffering=0) as file:
                while file.write(b"x" * size):
                    pass
        subprocess.run(["sync", "-f", str(self.root)], check=False)

    def leave(self, count: int) -> None:
        """About `count` bytes are free afterwards."""
        self.fill()
        os.truncate(self._ballast, max(0, self._ballast.stat().st_size - count))

    def clear(self) -> None:
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, kind: str, mebibytes: int) -> Iterator[SmallDisk]:
    """`kind`: ext4 (an image file, mounted by a loop device) or tmpfs."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount file systems")
    root = folder / "disk"
    root.mkdir()
    if kind == "tmpfs":
        command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(root)]
    else:
        image = folder / "disk.img"
        with image.open("wb") as file:
            file.truncate(mebibytes * MIB)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)
        command = ["mount", "-o", "loop", str(image), str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine mounts no {kind}: {done.stderr.strip()}")
    try:
        yield SmallDisk(root)
    finally:
        subprocess.run(["umount", "-l", str(root)], check=True)
