"""`ops/release`: what it refuses, what it makes, and that the same commit gives the same files."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import appliance
from ops import python_packages
from tests.contract.test_walls import ROOT, tracked
from tests.support.installs import EPOCH, tree_in

pytestmark = pytest.mark.slow

VERSION = appliance.__version__


def git(root: Path, *words: str) -> str:
    author = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    command = ["git", "-C", str(root), *author, "-c", "commit.gpgSign=false", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(root: Path) -> str:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "x")
    return git(root, "rev-parse", "HEAD")


class Repository:
    """A clone of its own, in which a release can be made."""

    def __init__(self, root: Path) -> None:
        self.root = tree_in(root)
        git(root, "init", "--quiet")
        commit(root)

    def release(self, *words: object, refused: str = "") -> str:
        """What it prints. `refused`: a part of the error, if there has to be one."""
        done = subprocess.run(
            [str(self.root / "ops/release"), *map(str, words)],
            cwd=self.root, capture_output=True, text=True, timeout=300, check=False,
            env={**os.environ, "AGENTLIP_RELEASE_PYTHON": sys.executable},
        )  # fmt: skip
        assert bool(done.returncode) == bool(refused), done.stdout + done.stderr
        assert refused in done.stderr
        return done.stdout.strip()

    def build(self, *words: object, refused: str = "") -> str:
        return self.release("build", "--images", "none", *words, refused=refused)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("clone"))


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """One whose changes have a date."""
    made = Repository(tmp_path_factory.mktemp("ready"))
    changelog = made.root / "CHANGELOG.md"
    text = changelog.read_text("utf-8")
    heading = re.compile(rf"^## {re.escape(VERSION)} .*$", re.MULTILINE)
    changelog.write_text(heading.sub(f"## {VERSION} (2026-01-02)", text, count=1), "utf-8")
    commit(made.root)
    return made


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key"
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "release", "-f", str(path)]
    subprocess.run(words, check=True)
    public = path.with_suffix(".pub").read_text()
    path.with_name("signers").write_text(f"release@example.org {public}")
    return path


@pytest.fixture(scope="module")
def signed(ready: Repository, key: Path) -> Path:
    """The folder of a signed release without images."""
    folder = Path(ready.build("--key", key))
    assert folder == ready.root / "dist" / VERSION
    return folder


def test_release_has_all_files_and_their_signed_checksums(signed: Path, key: Path) -> None:
    assert {path.name for path in signed.iterdir()} == {
        f"agentlip-{VERSION}-py3-none-any.whl", f"agentlip-{VERSION}.tar.gz",
        f"agentlip-appliance-{VERSION}.tgz", f"agentlip-{VERSION}-changes.md",
        "SHA256SUMS", "SHA256SUMS.sig",
    }  # fmt: skip
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=signed, check=True)
    subprocess.run(
        ["ssh-keygen", "-Y", "verify", "-n", "agentlip-release", "-I", "release@example.org",
         "-f", key.with_name("signers"), "-s", signed / "SHA256SUMS.sig"],
        input=(signed / "SHA256SUMS").read_bytes(), check=True,
    )  # fmt: skip
    changes = (signed / f"agentlip-{VERSION}-changes.md").read_text()
    assert changes.startswith(f"## {VERSION} (2026-01-02)\n\n")
    assert changes.count("\n## ") == 0


def test_commit_that_can_not_be_released_is_refused(repository: Repository) -> None:
    root = repository.root
    repository.build(refused="--key --unsigned is required")
    repository.build("--key", root / "none", refused="there is no key at")
    repository.build("--unsigned", refused="has no section for")
    (root / "x.txt").write_text("x")
    repository.build("--unsigned", refused="1 files differ from the commit: ?? x.txt")
    (root / "x.txt").unlink()
    git(root, "tag", f"v{VERSION}")
    repository.build("--unsigned", refused="has no section for")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "later")
    repository.build("--unsigned", refused=f"the tag v{VERSION} is on another commit")


# -- the wheel and the source distribution -------------------------------------------------


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    tree = tree_in(tmp_path_factory.mktemp("tree"))
    return python_packages.build(tree, tmp_path_factory.mktemp("packages"), EPOCH)


def test_another_folder_times_and_umask_give_the_same_bytes(
    packages: list[Path], tmp_path: Path
) -> None:
    tree = tree_in(tmp_path / "elsewhere" / "tree")
    for path in tree.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(path.stat().st_mode & 0o700)
    (target := tmp_path / "packages").mkdir()
    before = os.umask(0o077)
    try:
        again = python_packages.build(tree, target, EPOCH)
    finally:
        os.umask(before)
    assert [path.name for path in again] == [path.name for path in packages] != []
    for first, second in zip(packages, again, strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name


# -- one version ---------------------------------------------------------------------------


def test_version_is_written_in_one_place() -> None:
    number = re.compile(rf"(?<![\w.=-]){re.escape(VERSION)}(?![\w.-])")
    files = {
        str(file.relative_to(ROOT))
        for file in tracked(
            "*.py", "*.toml", "*.nix", "*.md", "ops/*", "Dockerfile", "*/Dockerfile"
        )
        if number.search(file.read_text("utf-8"))
    }
    assert files - {"CHANGELOG.md"} == {"appliance/__init__.py"}
