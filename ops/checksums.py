"""SHA256SUMS of a folder, and its signature."""

import hashlib
import shutil
import subprocess
from pathlib import Path

from ops.release_errors import FAILED, ReleaseError

SUMS = "SHA256SUMS"
NAMESPACE = "agentlip-release"
"""Signatures for other purposes with the same key are not valid for a release."""
COMMAND_SECONDS_MAX = 60


def write(folder: Path) -> dict[str, str]:
    """Writes SHA256SUMS, in the format of `sha256sum`; returns the hash of each file."""
    hashes = {path.name: sha256(path) for path in sorted(folder.iterdir())}
    lines = [f"{value}  {name}\n" for name, value in hashes.items()]
    (folder / SUMS).write_text("".join(lines), "utf-8")
    return hashes


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sign(folder: Path, key: Path) -> None:
    """Signs SHA256SUMS with an SSH key. A key with a passphrase asks on the terminal."""
    if shutil.which("ssh-keygen") is None:
        raise ReleaseError(
            "NO_SSH_KEYGEN",
            "ssh-keygen is not installed",
            "sudo apt-get install openssh-client",
            FAILED,
        )
    done = subprocess.run(
        ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", str(key), str(folder / SUMS)],
        capture_output=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise ReleaseError(
            "NOT_SIGNED",
            f"ssh-keygen could not sign with {key}: {_last_line(done)}",
            f"ssh-keygen -y -f {key}",
            FAILED,
        )


def _last_line(done: "subprocess.CompletedProcess[bytes]") -> str:
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"
