"""Other versions of this product: the same code with more migrations, as other processes."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from appliance.workspace import migration
from appliance.workspace.migration import load, newest
from tests.support.commands import ROOT, CommandOutput, environment, run


def next_step(store: str, sql: str, *, opens_with: int | None = None) -> dict[str, str]:
    """A further step of a store, which only programs that have it may open."""
    number = newest(load(store)) + 1
    header = f"-- opens-with: {number if opens_with is None else opens_with}\n"
    return {f"{store}/{number:04}_next.sql": header + sql}


STEPS = {
    name: text
    for store in ("auth", "broker", "courier", "hub", "outbox")
    for name, text in next_step(store, "CREATE TABLE x_new AS SELECT * FROM meta;").items()
}
"""A further step of five stores."""


def install_steps(patched: pytest.MonkeyPatch, folder: Path, steps: Mapping[str, str]) -> None:
    """This process becomes the program that has `steps` too."""
    copy_migrations(folder, steps)
    patched.setattr(migration, "resources", SimpleNamespace(files=lambda _: folder))


def copy_migrations(folder: Path, steps: Mapping[str, str]) -> None:
    shutil.copytree(ROOT / "migrations", folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in steps.items():
        (folder / name).write_text(text, encoding="utf-8")


class OtherProgram:
    """`steps` are added to the migrations: file name relative to `migrations/`, and text. `patch`
    is run when a process of this program starts."""

    def __init__(self, folder: Path, steps: Mapping[str, str], patch: str = "") -> None:
        self.root = folder
        folder.mkdir()
        for name in ("appliance", "doctor"):
            (folder / name).symlink_to(ROOT / name)
        copy_migrations(folder / "migrations", steps)
        if patch:
            (folder / "sitecustomize.py").write_text(patch, encoding="utf-8")

    def agentlip(self, *arguments: str, cwd: Path, **env: str) -> CommandOutput:
        return self._run("agentlip", *arguments, cwd=cwd, **env)

    def agentlipd(self, *arguments: str, cwd: Path, **env: str) -> CommandOutput:
        return self._run("agentlipd", *arguments, cwd=cwd, **env)

    def serve(self, workspace: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
        """Runs a server that is expected to end by itself."""
        return subprocess.run(
            [
                *(sys.executable, "-P", "-m", "appliance.server"),
                *("--workspace", str(workspace), "--port", "0", *flags),
            ],
            env=environment(PYTHONPATH=str(self.root)),
            capture_output=True,
            text=True,
            cwd=workspace,
            timeout=60,
            check=False,
        )

    def _run(self, name: str, *arguments: str, cwd: Path, **env: str) -> CommandOutput:
        return run(name, *arguments, cwd=cwd, **{"PYTHONPATH": str(self.root), **env})
