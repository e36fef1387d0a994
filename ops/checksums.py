"""SHA256SUMS of a folder, its signature, and the check of both."""

import hashlib
import shutil
import subprocess
from pathlib import Path

from ops.release_errors import FAILED, NOT_VERIFIED, USAGE, ReleaseError

SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
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
    done = _ssh_keygen("sign", "-f", str(key), str(folder / SUMS), read=None)
    if done.returncode:
        raise ReleaseError(
            "NOT_SIGNED",
            f"ssh-keygen could not sign with {key}: {_last_line(done)}",
            f"ssh-keygen -y -f {key}",
            FAILED,
        )


def verify(folder: Path, signers: Path | None) -> list[str]:
    """The names of the files, all of which have their recorded hash.

    `signers`: the allowed signers, in the format of ssh-keygen; None checks no signature.
    """
    if not (folder / SUMS).is_file():
        raise ReleaseError(
            "NOT_A_RELEASE",
            f"there is no {SUMS} in {folder}",
            "name the folder that has the files of one release",
            USAGE,
        )
    if signers is not None:
        _verify_signature(folder, signers)
    hashes = _read_recorded(folder)
    present = {path.name for path in folder.iterdir()} - {SUMS, SIGNATURE}
    for name, expected in hashes.items():
        if name not in present:
            raise _refused("MISSING_FILE", f"{name} is listed in {SUMS} but missing")
        if sha256(folder / name) != expected:
            raise _refused("BAD_CHECKSUM", f"{name} differs from its checksum")
    if unlisted := sorted(present - set(hashes)):
        raise _refused("UNLISTED_FILE", f"{unlisted[0]} is not listed in {SUMS}")
    return sorted(hashes)


def _read_recorded(folder: Path) -> dict[str, str]:
    lines = (folder / SUMS).read_text("utf-8").splitlines()
    parts = [line.partition("  ") for line in lines]
    if not all(name for _, _, name in parts):
        raise _refused("BAD_CHECKSUM", f"{SUMS} has a line without a file")
    return {name: value for value, _, name in parts}


def _verify_signature(folder: Path, signers: Path) -> None:
    if not (folder / SIGNATURE).is_file():
        raise _refused("NO_SIGNATURE", f"{folder} has no {SIGNATURE}")
    if not signers.is_file():
        raise ReleaseError(
            "NO_SIGNERS",
            f"there is no file of allowed signers at {signers}",
            "write a line into it: NAME ssh-ed25519 KEY",
            USAGE,
        )
    signature = ("-s", str(folder / SIGNATURE))
    principals = _ssh_keygen("find-principals", "-f", str(signers), *signature, read=None)
    name = principals.stdout.decode().partition("\n")[0]
    allowed = ("-f", str(signers), "-I", name, *signature)
    if principals.returncode or _ssh_keygen("verify", *allowed, read=folder / SUMS).returncode:
        raise _refused("BAD_SIGNATURE", f"{SIGNATURE} is not by one of the allowed signers")


def _ssh_keygen(
    action: str, *arguments: str, read: Path | None
) -> "subprocess.CompletedProcess[bytes]":
    if shutil.which("ssh-keygen") is None:
        raise ReleaseError(
            "NO_SSH_KEYGEN",
            "ssh-keygen is not installed",
            "sudo apt-get install openssh-client",
            FAILED,
        )
    return subprocess.run(
        ["ssh-keygen", "-Y", action, "-n", NAMESPACE, *arguments],
        input=None if read is None else read.read_bytes(),
        capture_output=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )


def _last_line(done: "subprocess.CompletedProcess[bytes]") -> str:
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


def _refused(code: str, message: str) -> ReleaseError:
    return ReleaseError(code, message, "download the release again", NOT_VERIFIED)
