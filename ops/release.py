"""Makes a release; ops/release starts it.

Exit codes: 0 done, 2 usage, 3 this commit can't be released, 4 a step failed.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ops import changelog, checksums, python_packages
from ops.release_errors import FAILED, NOT_READY, USAGE, ReleaseError

ROOT = Path(__file__).resolve().parents[1]
GIT_SECONDS_MAX = 60
IMAGE_SECONDS_MAX = 3600
VARIANTS = ("export", "spark", "spark-s3")
IMAGES = {"agentlip": [], **{f"agentlip-{name}": [f"--{name}"] for name in VARIANTS}}
"""Each image's name, and what selects it in ops/image."""
Answer = dict[str, Any]


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    flags = parse(arguments)
    try:
        answer = flags.run(flags, root)
    except ReleaseError as error:
        if flags.json:
            fields = {"code": error.code, "message": error.message, "hint": error.hint}
            print(json.dumps({"error": fields}))
        print(f"Error: {error.message} ({error.code})\nHint: {error.hint}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(answer) if flags.json else answer["text"])
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="ops/release", description="Make a release.",
        epilog=(__doc__ or "").partition("\n\n")[2],
    )  # fmt: skip
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text, epilog=parser.epilog)
        made.set_defaults(run=run)
        made.add_argument("--json", action="store_true", help="print one JSON object")
        return made

    notes = command("changelog", collect_notes, "Move the notes into CHANGELOG.md.")
    today = datetime.now(UTC).date().isoformat()
    notes.add_argument("--date", default=today, help="date of the release, YYYY-MM-DD")
    build = command("build", build_release, "Make all files of the release.")
    build.add_argument("--out", type=Path, default=Path("dist"), help="parent folder (dist)")
    build.add_argument("--key", type=Path, help="SSH key that signs the checksums")
    build.add_argument("--unsigned", action="store_true", help="make a release without signature")
    names = [*IMAGES, "none"]
    build.add_argument(
        "--images", nargs="+", choices=names, default=list(IMAGES),
        help="the images to include (all)",
    )  # fmt: skip
    return parser.parse_args(arguments)


def collect_notes(flags: argparse.Namespace, root: Path) -> Answer:
    version = python_packages.version_of(root)
    count = changelog.collect(root, version, flags.date)
    text = f"CHANGELOG.md: {count} notes in the section of {version}"
    return {"version": version, "notes": count, "text": text}


def build_release(flags: argparse.Namespace, root: Path) -> Answer:
    require_key(flags)
    version = python_packages.version_of(root)
    revision = git(root, "rev-parse", "HEAD")
    require_releasable(root, version, revision)
    out = flags.out.absolute()  # steps run in other folders
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=f".{version}-") as scratch:
        folder = Path(scratch) / "release"
        folder.mkdir()
        make_files(flags, root, folder, version, revision)
        hashes = checksums.write(folder)
        if flags.key is not None:
            checksums.sign(folder, flags.key)
        target = out / version
        shutil.rmtree(target, ignore_errors=True)
        folder.rename(target)
    signed = flags.key is not None
    text = f"{target}: {len(hashes)} files, {'signed' if signed else 'not signed'}"
    files = [
        {"name": name, "bytes": (target / name).stat().st_size, "sha256": value}
        for name, value in hashes.items()
    ]
    return {"version": version, "revision": revision, "folder": str(target), "signed": signed,
            "files": files, "text": text}  # fmt: skip


def require_key(flags: argparse.Namespace) -> None:
    if flags.key is None and not flags.unsigned:
        raise ReleaseError(
            "NO_KEY",
            "no key is named to sign the release",
            "add --key FILE (ssh-keygen -t ed25519 makes one), or --unsigned",
            USAGE,
        )
    if flags.key is not None and not flags.key.is_file():
        raise ReleaseError(
            "NO_KEY", f"there is no key at {flags.key}", "ssh-keygen -t ed25519 -f FILE", USAGE
        )


def require_releasable(root: Path, version: str, revision: str) -> None:
    """The tree is that of the commit, its version is not released, and its notes are collected."""
    if changed := git(root, "status", "--porcelain").splitlines():
        raise ReleaseError(
            "DIRTY_TREE",
            f"{len(changed)} files differ from the commit: {changed[0]}",
            "commit them, or git stash --include-untracked",
            NOT_READY,
        )
    tagged = git(root, "tag", "--list", f"v{version}", "--format", "%(objectname) %(*objectname)")
    if tagged and revision not in tagged.split():
        raise ReleaseError(
            "VERSION_RELEASED",
            f"the tag v{version} is on another commit",
            "raise __version__ in appliance/__init__.py",
            NOT_READY,
        )
    if changelog.notes(root) or not changelog.section_of(root, version):
        raise ReleaseError(
            "NOTES_NOT_COLLECTED",
            f"CHANGELOG.md has no section for {version}, or changelog/ still has notes",
            "ops/release changelog, then commit",
            NOT_READY,
        )


def make_files(
    flags: argparse.Namespace, root: Path, folder: Path, version: str, revision: str
) -> None:
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or git(root, "log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as tree:
        export(root, revision, Path(tree))
        say("building the source distribution and the wheel")
        python_packages.build(Path(tree), folder, epoch)
    notes = changelog.section_of(root, version)
    (folder / f"agentlip-{version}-changes.md").write_text(notes, "utf-8")
    for name in flags.images:
        if name != "none":
            save_image(root, folder, name, version)


def save_image(root: Path, folder: Path, name: str, version: str) -> None:
    """Builds an image, and writes it as an archive for `docker load`."""
    tag = f"{name}:{version}"
    archive = folder / f"{name}-{version}-image-{platform.machine()}.tar"
    steps = (
        [str(root / "ops/image"), *IMAGES[name], tag],
        ["docker", "save", "--output", str(archive), tag],
    )
    for step in steps:
        say(" ".join(step))
        if subprocess.run(step, stdout=sys.stderr, timeout=IMAGE_SECONDS_MAX).returncode:
            hint = "ops/engine, or build without images: ops/release build --images none"
            raise ReleaseError("IMAGE_FAILED", f"'{' '.join(step)}' failed", hint, FAILED)


def export(root: Path, revision: str, folder: Path) -> None:
    """The files of a commit, without anything that git does not know."""
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        git(root, "archive", "--format=tar", "--output", file.name, revision)
        with tarfile.open(file.name) as archive:
            archive.extractall(folder, filter="data")


def git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *words],
        capture_output=True, text=True, timeout=GIT_SECONDS_MAX, check=False,
    )  # fmt: skip
    if done.returncode:
        raise ReleaseError(
            "NO_COMMIT", f"git {words[0]}: {done.stderr.strip()}", "run it in a clone", NOT_READY
        )
    return done.stdout.strip()


def say(text: str) -> None:
    print(f"ops/release: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
