"""The how-to page of upgrades, as written: its commands, in order, with two versions."""

import re
import shlex
from pathlib import Path

import pytest

from appliance.workspace.migration import load, newest
from tests.support.commands import ROOT, command, environment
from tests.support.installs import run_script
from tests.support.other_versions import OtherProgram, next_step
from tests.support.workspaces import Filled

pytestmark = pytest.mark.slow
PAGE = ROOT / "docs" / "how-to" / "upgrade.md"
BLOCK = re.compile(r"^```(sh|sh install)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEWEST = newest(load("hub"))


class Installed:
    """Commands on a PATH, which belong to one version after the other."""

    def __init__(self, folder: Path, workspace: Path, versions: dict[str, Path]) -> None:
        self.folder, self.workspace, self.versions = folder, workspace, versions
        folder.mkdir()
        self.install("older")

    def install(self, version: str) -> None:
        for name in ("agentlip", "agentlipd"):
            words = ["env", f"PYTHONPATH={self.versions[version]}", *command(name)]
            (self.folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            (self.folder / name).chmod(0o755)

    def run(self, script: str) -> str:
        path = f"{self.folder}:{environment()['PATH']}"
        return run_script(script, self.workspace, environment(PATH=path))


def test_commands_of_the_page_upgrade_a_workspace_and_take_it_back(tmp_path: Path) -> None:
    newer = OtherProgram(tmp_path / "newer", next_step("hub", "CREATE TABLE x_new (a);"))
    datadir = Filled(tmp_path / "ws").datadir
    versions = {"older": ROOT, "newer": newer.root}
    installed = Installed(tmp_path / "bin", datadir.workspace, versions)
    installed.run("agentlipd up")
    installed.install("newer")  # beside the other one, for the check
    order = iter(("newer", "older"))
    printed, name = [], ""
    try:
        for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
            if kind == "sh install":
                installed.install(next(order))
                continue
            printed.append(installed.run(text.replace("NAME", name)))
            match = re.search(r"(\d{8}T\d{6}Z-[0-9a-f]{6}).* before-migration", printed[-1])
            name = match[1] if match else name
    finally:
        installed.run("agentlipd down")
    assert f"hub: schema {NEWEST} → {NEWEST + 1}" in printed[0]
    assert name
    assert f"hub: schema {NEWEST}, nothing to do" in printed[-1]
    assert next(order, None) is None
