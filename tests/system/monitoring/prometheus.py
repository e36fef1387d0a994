"""Prometheus, its tool and Alertmanager, as Debian has them: `ops/test` unpacks the packages."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_walls import ROOT

UNPACKED = ROOT / ".cache" / "debian" / "usr" / "bin"
RULES = ROOT / "ops" / "prometheus"
SECONDS_MAX = 300


def program(name: str) -> Path:
    """Skips the test if the program is missing and may be."""
    path = shutil.which(name, path=os.pathsep.join([str(UNPACKED), os.environ["PATH"]]))
    if path is None:
        if os.environ.get("CONTAINERS_MUST_RUN") == "1":  # in CI nothing may be left out
            pytest.fail(f"{name} is missing")
        pytest.skip(f"{name} is missing; ops/test unpacks it")
    return Path(path)


def run(name: str, *arguments: Any, cwd: Path = RULES) -> str:
    """The output of a run that succeeds."""
    command = [program(name), *map(str, arguments)]
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
