"""Tests use workspaces of their own and never one that a user runs from this clone."""

import os
import subprocess

from tests.support.commands import ROOT, command, environment


def test_test_environment_names_no_workspace():
    ours = {name: value for name, value in os.environ.items() if name.startswith("AGENTLIP_")}
    assert ours == {"AGENTLIP_CEILING_DIRECTORIES": str(ROOT)}
    assert environment()["AGENTLIP_CEILING_DIRECTORIES"] == str(ROOT)


def test_command_run_in_the_clone_finds_no_workspace():
    done = subprocess.run(
        command("agentlip", "channel", "list", "--json"),
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "WORKSPACE_NOT_FOUND" in done.stderr
