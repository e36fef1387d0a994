"""Evaluates the flake without a network: `tests/nix` takes the place of nixpkgs."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
STUB = ROOT / "tests" / "nix"
SECONDS_MAX = 120
# What the flake reads; the folders of an environment or of a cache are not part of it.
SOURCES = ["flake.nix", "flake.lock", "nix", "appliance", "doctor", "migrations", "spark"]
FILES = ["README.md", "pyproject.toml", "setup.py", "ops/docker-entrypoint"]


class Flake:
    """A copy of the flake in `folder`, with a store of its own."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("nix") is None:
            pytest.skip("nix is missing; run: sudo apt-get install nix-bin")
        self.tree = folder / "tree"
        self._home = folder / "home"
        self._store = folder / "store"
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--"]
        names = subprocess.check_output([*listed, *SOURCES, *FILES], cwd=ROOT, text=True)
        for name in filter(lambda name: (ROOT / name).is_file(), names.splitlines()):
            copy = self.tree / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy)

    def flake(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """`nix ARGUMENTS…` about the flake, with nixpkgs replaced."""
        settings = "experimental-features = nix-command flakes\nbuild-users-group ="
        offline = ["--offline", "--no-write-lock-file", "--override-input", "nixpkgs"]
        return subprocess.run(
            ["nix", *arguments, *offline, f"path:{STUB}", "--store", str(self._store)],
            cwd=self.tree,
            env=os.environ | {"HOME": str(self._home), "NIX_CONFIG": settings} | environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    def outputs(self, group: str) -> Any:
        """What tests/nix/describe.nix has of a group of outputs, such as `packages`."""
        return self._evaluate(group, f"(import {STUB}/describe.nix).{group}")

    def machine(self, **options: Any) -> Any:
        """What the NixOS module makes of `services.agentlip = options`."""
        function = f"""module: let
            lib = import {STUB}/lib.nix;
            pkgs = import {STUB}/packages.nix {{ inherit lib; system = "x86_64-linux"; }};
            options = builtins.fromJSON (builtins.getEnv "OPTIONS");
        in import {STUB}/machine.nix {{ inherit lib pkgs module options; }}"""
        return self._evaluate("nixosModules.default", function, OPTIONS=json.dumps(options))

    def _evaluate(self, output: str, function: str, **environment: str) -> Any:
        reference = f"path:{self.tree}#{output}"
        # --impure: `function` reads files and a variable outside the flake.
        done = self.flake(
            "eval", "--json", "--impure", reference, "--apply", function, **environment
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
