"""Makes a release; ops/release starts it.

Exit codes: 0 done, 1 this commit can't be released or a step failed, 2 usage.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from ops import python_packages, typescript_client

ROOT = Path(__file__).resolve().parents[1]
GIT_SECONDS_MAX = 60
IMAGE_SECONDS_MAX = 3600
VARIANTS = ("export", "spark", "spark-s3")
IMAGES = {"agentlip": [], **{f"agentlip-{name}": [f"--{name}"] for name in VARIANTS}}
"""Each image's name, with the ops/image flags that select it."""
SUMS = "SHA256SUMS"
NAMESPACE = "agentlip-release"
"""Signatures that the key made for other purposes are not valid for a release."""


def main() -> None:
    flags = parse()
    print(flags.run(flags, ROOT))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="ops/release", description="Make a release.",
        epilog=(__doc__ or "").partition("\n\n")[2],
    )  # fmt: skip
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="Make all release files.")
    build.set_defaults(run=build_release)
    build.add_argument("--out", type=Path, default=Path("dist"), help="parent folder (dist)")
    signature = build.add_mutually_exclusive_group(required=True)
    signature.add_argument("--key", type=Path, help="SSH key that signs the checksums")
    signature.add_argument("--unsigned", action="store_true", help="make no signature")
    build.add_argument(
        "--images", nargs="+", choices=[*IMAGES, "none"], default=list(IMAGES),
        help="the images to include (all)",
    )  # fmt: skip
    about = "folder with OSV records, with which the Java libraries are compared"
    build.add_argument("--advisories", type=Path, help=about)
    return parser.parse_args()


def build_release(flags: argparse.Namespace, root: Path) -> Path:
    """Build the release and return its folder."""
    if flags.key is not None and not flags.key.is_file():
        raise SystemExit(f"there is no key at {flags.key}: ssh-keygen -t ed25519 -f FILE")
    version = python_packages.version_of(root)
    revision = git(root, "rev-parse", "HEAD")
    require_releasable(root, version, revision)
    out = flags.out.absolute()  # steps run in other folders
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=f".{version}-") as scratch:
        folder = Path(scratch) / "release"
        folder.mkdir()
        make_files(flags, root, folder, version, revision)
        names = sorted(path.name for path in folder.iterdir())
        with (folder / SUMS).open("w") as sums:
            subprocess.run(["sha256sum", *names], cwd=folder, stdout=sums, check=True)
        if flags.key is not None:
            sign(folder / SUMS, flags.key)
        target: Path = out / version
        shutil.rmtree(target, ignore_errors=True)
        folder.rename(target)
    return target


def require_releasable(root: Path, version: str, revision: str) -> None:
    """Require that the tree equals the commit, that its version is not released, and that
    CHANGELOG.md has its section, with a date."""
    if changed := git(root, "status", "--porcelain").splitlines():
        raise SystemExit(f"{len(changed)} files differ from the commit: {changed[0]}")
    tagged = git(root, "tag", "--list", f"v{version}", "--format", "%(objectname) %(*objectname)")
    if tagged and revision not in tagged.split():
        raise SystemExit(f"the tag v{version} is on another commit: raise __version__")
    if not changes_of(root, version):
        raise SystemExit(f"CHANGELOG.md has no section for {version} with the date of the release")


def changes_of(root: Path, version: str) -> str:
    """Return a version's section with its heading; empty if there is none with a date."""
    text = (root / "CHANGELOG.md").read_text("utf-8")
    heading = rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)"
    match = re.search(rf"{heading}.*?(?=^## |\Z)", text, re.M | re.S)
    return match[0].strip() + "\n" if match else ""


def make_files(
    flags: argparse.Namespace, root: Path, folder: Path, version: str, revision: str
) -> None:
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or git(root, "log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as tree:
        export(root, revision, Path(tree))
        say("building the source distribution and the wheel")
        python_packages.build(Path(tree), folder, epoch)
        say("building the TypeScript client")
        typescript_client.build(Path(tree) / "clients/typescript", folder)
    changes = changes_of(root, version)
    (folder / f"agentlip-{version}-changes.md").write_text(changes, "utf-8")
    for name in flags.images:
        if name != "none":
            save_image(root, folder, name, version, flags.advisories)


def save_image(root: Path, folder: Path, name: str, version: str, advisories: Path | None) -> None:
    """Build an image and write an archive for `docker load`."""
    tag = f"{name}:{version}"
    archive = folder / f"{name}-{version}-image-{platform.machine()}.tar"
    steps = (
        [str(root / "ops/image"), *IMAGES[name], tag],
        ["docker", "save", "--output", str(archive), tag],
    )
    for step in steps:
        say(" ".join(step))
        subprocess.run(step, stdout=sys.stderr, timeout=IMAGE_SECONDS_MAX, check=True)
    if "spark" in name:
        list_jars(root, tag, folder / f"{name}-{version}-jars.md", advisories)


def list_jars(root: Path, tag: str, target: Path, advisories: Path | None) -> None:
    """Write an image's Java libraries with their licences and known advisories."""
    records = ["-v", f"{advisories.resolve()}:/advisories:ro"] if advisories else []
    run = ["docker", "run", "--rm", "-i", "--user", "0", "--network", "none", *records]
    command = [*run, "--entrypoint", "python3", tag, "-", *(["/advisories"] if advisories else [])]
    with (root / "spark/list-jars").open("rb") as script, target.open("wb") as file:
        subprocess.run(command, stdin=script, stdout=file, timeout=GIT_SECONDS_MAX, check=True)


def sign(file: Path, key: Path) -> None:
    """Sign a file with an SSH key. `ssh-keygen` reads a passphrase from the terminal."""
    command = ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", str(key), str(file)]
    subprocess.run(command, stdout=sys.stderr, check=True)


def export(root: Path, revision: str, folder: Path) -> None:
    """Write a commit's files, without files that Git does not know."""
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        git(root, "archive", "--format=tar", "--output", file.name, revision)
        with tarfile.open(file.name) as archive:
            archive.extractall(folder)  # our own; Python 3.11.2 has no filters


def git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    return subprocess.check_output(command, text=True, timeout=GIT_SECONDS_MAX).strip()


def say(text: str) -> None:
    print(f"ops/release: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
