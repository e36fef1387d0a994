"""The demonstration, shortened: real history in, the same counts out."""

import gzip
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.commands import ROOT, environment
from tests.support.hubprocess import HubProcess

pytestmark = pytest.mark.slow


def _demo(*flags: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(ROOT / "ops" / "demo"), *map(str, flags)],
        capture_output=True, text=True, timeout=120, check=False,
        env=environment(AGENTLIP_DEMO_PYTHON=sys.executable),
    )  # fmt: skip


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small repository, for a checkout need not have its history."""
    path = tmp_path / "repository"
    path.mkdir()
    for arguments in (
        ["init", "-q"],
        *(
            ["-c", "user.name=Ann Ü", "-c", "user.email=a@example.org", "commit", "-q",
             "--allow-empty", "-m", f"Change {number}\n\nBecause of {number}."]
            for number in range(40)
        ),
    ):  # fmt: skip
        subprocess.run(["git", "-C", str(path), *arguments], check=True, timeout=30)
    return path


def test_demo_in_a_running_hub_posts_each_message_once(hub: HubProcess, repository: Path) -> None:
    flags = ["--workspace", hub.workspace, "--repo", repository, "--limit", 400, "--json", "--yes"]
    first = _demo(*flags, "--senders", 4)
    assert first.returncode == 0, first
    report = json.loads(first.stdout)
    assert report["agree"] is True
    assert report["sent"] == report["messages_in_log"] >= 40
    assert [each["missing"] for each in report["listeners"]] == [0, 0]
    second = json.loads(_demo(*flags).stdout)
    assert (second["sent"], second["already_there"]) == (0, report["sent"])
    assert second["agree"] is True


def test_demo_asks_before_it_posts_into_an_existing_workspace(
    hub: HubProcess, repository: Path
) -> None:
    before = len(hub.events())
    done = _demo("--workspace", hub.workspace, "--repo", repository, "--no-changelogs")
    assert done.returncode == 1, done
    assert f"40 messages into the workspace {hub.workspace}" in done.stderr
    assert "Hint: ops/demo --yes" in done.stderr
    assert len(hub.events()) == before


def test_demo_uses_a_running_appliance_only_if_it_is_named(repository: Path) -> None:
    """Also not that of the clone it lies in."""
    done = _demo("--repo", repository, "--no-changelogs", "--senders", 1)
    assert "a temporary appliance" in done.stdout, done


def test_demo_without_any_history_is_an_error(tmp_path: Path) -> None:
    done = _demo("--repo", tmp_path, "--no-changelogs")
    assert done.returncode == 1
    assert "no history found" in done.stderr


@pytest.fixture(scope="module")
def history() -> ModuleType:
    return _module("history")


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    return _module("demo")


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "ops" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHANGELOG = """\
some words before the first entry
bash (5.2-1+b1) sid; urgency=low, binary-only=yes

  * Binary-only non-maintainer upload for amd64; no source changes.

 -- all / amd64 / i386 Build Daemon (x86-01) <buildd@example.org>  Mon, 02 Jan 2023 13:06:21 +0100

bash (5.2-1) unstable; urgency=medium

  * Thanks to J\xf6rg.
 -- <nameless@example.org>  Sat, 31 Dec 2022 16:40:30 +0100

bash (5.1) unstable

  * Nobody signed this.

Local variables:
mode: debian-changelog
"""


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_changelogs_of_every_kind_are_read(
    history: ModuleType, tmp_path: Path, encoding: str
) -> None:
    for name, raw in (
        ("bash", gzip.compress(CHANGELOG.encode(encoding))),
        ("damaged", gzip.compress(b"x" * 1000)[:20]),
        ("empty", gzip.compress(b"")),
        ("not-gzip", b"plain"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "changelog.Debian.gz").write_bytes(raw)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    entries = history.changelogs(tmp_path)
    assert [(each.topic, each.sender) for each in entries] == [
        ("bash", "unknown"),
        ("bash", "nameless@example.org"),
        ("bash", "all / amd64 / i386 Build Daemon (x86-01)"),
    ]
    assert "Thanks to Jörg." in entries[1].content
    assert len({each.key for each in entries}) == 3
