"""The product as its users install it: packages in a folder, environments, blocks of the README."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from ops import python_packages
from tests.contract.test_walls import ROOT, tracked

EPOCH = 1_700_000_000
SECONDS_MAX = 600
BLOCK = re.compile(r"^```sh install (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def tree_in(target: Path) -> Path:
    """The files that a commit would have: no environment, nothing that git ignores."""
    for file in tracked():
        path = target / file.relative_to(ROOT)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.read_bytes())
        path.chmod(file.stat().st_mode & 0o777)
    return target


def blocks() -> dict[str, str]:
    """The commands of each way to install in the README, by the name behind `sh install`."""
    return dict(BLOCK.findall((ROOT / "README.md").read_text("utf-8")))


def run_script(script: str, folder: Path, environment: Mapping[str, str], expect: int = 0) -> str:
    """What the commands print."""
    done = subprocess.run(
        ["bash", "-eu", "-c", script], cwd=folder, env=environment, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == expect, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


class Packages:
    """A folder with the wheel of this tree and everything that it needs, instead of an index."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "packages"
        self.folder.mkdir()
        _, self.wheel = python_packages.build(tree_in(folder / "tree"), self.folder, EPOCH)
        words = ["download", "-q", "--only-binary", ":all:", "-d", str(self.folder)]
        self._pip(*words, f"{self.wheel}[appliance]")

    def environment(self, folder: Path, *names: str) -> dict[str, str]:
        """Makes an environment and returns the variables with which pip and uv use this folder."""
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
        nothing = folder / "no-index"
        nothing.mkdir()
        return {
            "PATH": f"{folder / 'bin'}:/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8",
            "AGENTLIP_HTTP__PORT": "0",
            "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.folder), "PIP_NO_COMPILE": "1",
            "UV_NO_CONFIG": "1", "UV_DEFAULT_INDEX": nothing.as_uri(),
            "UV_FIND_LINKS": str(self.folder), "UV_PYTHON": sys.executable,
            "UV_CACHE_DIR": str(folder / "uv"), "UV_OFFLINE": "1",
        }  # fmt: skip

    def _pip(self, *words: str) -> None:
        subprocess.run([sys.executable, "-m", "pip", *words], check=True, timeout=SECONDS_MAX)


class Installed:
    """An environment in which one block of the README was run, and what runs there."""

    def __init__(self, packages: Packages, home: Path, block: str) -> None:
        self.home = home
        self.variables = packages.environment(home)
        self.shell(block)

    def shell(self, script: str, expect: int = 0) -> str:
        return run_script(script, self.home, self.variables, expect)

    def ends_well(self, command: list[str]) -> bool:
        """Whether the command ends with 0."""
        done = subprocess.run(
            command, env=self.variables, capture_output=True, timeout=60, check=False
        )
        return done.returncode == 0

    def python(self, program: str) -> str:
        return self.shell(f"python - <<'END'\n{program}\nEND").strip()
