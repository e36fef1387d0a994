"""What is committed works anywhere: no addresses, no paths of one machine, no secrets."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.contract.prose import BINARY
from tests.contract.test_walls import ROOT, tracked

SCRIPTS = [
    "ops/up", "ops/down", "ops/test", "ops/env", "ops/engine", "ops/image", "ops/image-layer",
    "ops/lock", "ops/migration", "ops/release", "ops/size", "ops/docker-entrypoint", ".ci/run",
    "spark/entrypoint.sh",
]  # fmt: skip
# Written in pieces, so that this file does not hold what it forbids.
FORBIDDEN = {
    "a package registry's host": r"\b(?:"
    + "|".join(
        re.escape(".".join(host))
        for host in [
            ("pypi", "org"),
            ("files", "pythonhosted", "org"),
            ("registry", "npmjs", "org"),
            ("deb", "debian", "org"),
            ("proxy", "golang", "org"),
        ]
    )
    + r")\b",
    "a folder of one machine": r"(?<![\w.])/(?:work|root|home/\w+|tmp/w[t/])/",
    "a private key": "-----BEGIN [A-Z ]*" + "PRIVATE KEY-----",
    "a token": r"\b(?:gh[pousr]_\w{30}|xox[abpr]-\w{10}|AKIA[0-9A-Z]{16}|[0-9a-f]{64})\b",
}


def text_files() -> list[Path]:
    return [file for file in tracked() if file.suffix not in BINARY]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_committed_file_holds(what):
    pattern = re.compile(FORBIDDEN[what])
    hits = []
    for file in text_files():
        # A lock's hashes look like tokens, but are not.
        if what == "a token" and file.parent.name in ("requirements", "vendor"):
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if pattern.search(line):
                hits.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert hits == []


@pytest.mark.parametrize(
    "name", ["build", "appliance", "export", "dev", "docs", "spark", "spark-build", "spark-test"]
)
def test_lock_file_has_exact_versions_hashes_and_no_address(name):
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    requirements = re.split(r"\n(?=\S)", re.sub(r"(?m)^\s*#.*\n", "", text))
    assert all(re.match(r"[\w.-]+==\S+", item) for item in requirements)
    assert all("--hash=sha256:" in item for item in requirements)
    assert "://" not in text
    assert not re.search(r"(?m)^--?(?:index|extra|find|trusted)", text)


def test_development_set_holds_the_shipped_versions():
    def pins(name: str) -> set[str]:
        return set(re.findall(r"(?m)^\S+==\S+", (ROOT / "requirements" / name).read_text()))

    assert pins("appliance.txt") - pins("dev.txt") == set()


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_is_executable_and_parses(name):
    script = ROOT / name
    assert os.access(script, os.X_OK)
    shell = "sh" if script.read_text().startswith("#!/bin/sh") else "bash"
    subprocess.run([shell, "-n", str(script)], check=True)


@pytest.mark.slow
def test_shellcheck_reports_nothing():
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    subprocess.run(["shellcheck", "-x", *SCRIPTS], cwd=ROOT, check=True)


def test_compose_publishes_on_loopback_only_and_gives_no_privilege():
    services = yaml.safe_load((ROOT / "ops/compose.yaml").read_text())["services"]
    appliance = services["appliance"]
    assert all(port.startswith("127.0.0.1:") for port in appliance["ports"])
    assert appliance["read_only"] is True
    for service in services.values():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not service.get("privileged", False)
    assert services["tls"]["profiles"] == ["tls"]


COMPOSE_FILES = [str(path.relative_to(ROOT)) for path in tracked("*compose*.yaml")]


def test_compose_files_have_the_schema_of_compose():
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    subprocess.run([*checker, *COMPOSE_FILES], cwd=ROOT, check=True)


@pytest.mark.parametrize("file", COMPOSE_FILES)
def test_project_names_the_volumes_of_compose_and_not_the_folder(file):
    """Two projects on one machine must not share their data."""
    volumes = yaml.safe_load((ROOT / file).read_text()).get("volumes", {})
    assert not any(volumes.values()), "a volume has a fixed name"
    if volumes:
        assert (ROOT / file).with_name(".env").read_text() == "COMPOSE_PROJECT_NAME=agentlip\n"


@pytest.mark.container
@pytest.mark.parametrize(
    "profile", [[], *(["--profile", name] for name in ("tls", "monitoring", "spark", "job"))]
)
@pytest.mark.parametrize("file", COMPOSE_FILES)
def test_compose_of_this_machine_accepts_the_file(profile, file):
    """Compose 2 where the engine has it, otherwise Debian's 1.29, which is installed if missing."""
    command = ["ops/engine", "compose", "-f", file, *profile, "config", "-q"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)


def just(*arguments: str) -> str:
    program = Path(sys.executable).parent / "just"
    if not program.exists():
        pytest.skip("just is not in this environment; run: ops/env dev")
    return subprocess.check_output(
        [program, "--justfile", ROOT / "Justfile", *arguments], text=True, stderr=subprocess.STDOUT
    )


def test_justfile_is_formatted_and_every_recipe_says_what_it_does():
    just("--unstable", "--fmt", "--check")
    recipes = [line for line in just("--list").splitlines() if line.startswith("    ")]
    assert len(recipes) > 10
    assert [line for line in recipes if "#" not in line] == []
