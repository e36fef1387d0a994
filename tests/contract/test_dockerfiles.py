"""Dockerfiles: lint, what both builders understand, and wheels for both architectures."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.test_walls import ROOT, tracked

DOCKERFILES = [file for file in tracked() if "Dockerfile" in file.name]
PROGRAMS = Path(sys.executable).parent


def names(file):
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("file", DOCKERFILES, ids=names)
def test_hadolint_finds_nothing(file):
    command = [PROGRAMS / "hadolint", "--config", ROOT / ".hadolint.yaml", "--no-color", file]
    linted = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (linted.returncode, linted.stdout) == (0, "")


@pytest.mark.parametrize("file", DOCKERFILES, ids=names)
def test_the_classic_builder_understands_it(file):
    code = re.sub(r"(?m)^#(?! *syntax=).*\n", "", file.read_text())
    for newer in ["<<", "--mount", "--chmod", "--link", "syntax="]:
        assert newer not in code
    assert code.startswith("ARG BASE_IMAGE=debian:bookworm-slim\n")


def installed_from_wheels():
    """The lock files that an image installs with `--only-binary :all:`."""
    for file in DOCKERFILES:
        text = file.read_text().replace("\\\n", " ")
        for command in re.findall(r"pip (?:--python \S+ )?install ([^&\n]*)", text):
            source = "pyspark" if "--no-binary pyspark" in command else None
            for lock in re.findall(r"-r \S*?([\w-]+\.txt)", command):
                assert "--require-hashes" in command
                assert "--only-binary :all:" in command
                yield pytest.param(lock, source, id=f"{file.parent.name}-{lock}")


def pip_index():
    """uv's names for the package index of pip on this machine."""
    settings = {"UV_DEFAULT_INDEX": "index-url", "UV_INDEX": "extra-index-url"}
    command = [sys.executable, "-m", "pip", "config", "list"]
    configured = subprocess.check_output(command, text=True)
    for name, setting in settings.items():
        if value := re.search(rf"(?m)^\S+\.{setting}='(.*)'$", configured):
            yield name, " ".join(value[1].split("\\n")).strip()


@pytest.mark.slow  # asks the package index
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(("lock", "source"), list(installed_from_wheels()))
def test_wheels_exist_for_both_architectures(lock, source, machine, tmp_path):
    resolve = [
        PROGRAMS / "uv", "pip", "install", "--dry-run", "--quiet", "--no-config",
        "--index-strategy", "unsafe-best-match",
        "--require-hashes",
        "--no-deps", "--only-binary", ":all:", "--python-platform", f"{machine}-manylinux_2_28",
        "--python-version", "3.11", "--target", tmp_path, "-r", ROOT / "requirements" / lock,
    ]  # fmt: skip
    if source:
        resolve += ["--no-binary", source]
    environment = os.environ | dict(pip_index())
    done = subprocess.run(resolve, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
