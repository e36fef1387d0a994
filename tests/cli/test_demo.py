"""The demonstration, shortened: history in, the same counts out."""

import json
import subprocess
import sys
from pathlib import Path

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
    done = _demo("--workspace", hub.workspace, "--repo", repository, "--limit", 30)
    assert done.returncode == 0, done
    report = json.loads(done.stdout)
    assert report["agree"] is True
    assert report["messages"] == report["acknowledged"] == report["messages_in_log"] == 30
    assert report["received"] == [report["events"]] * 2
