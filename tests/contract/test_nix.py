"""The flake: every output evaluates, and agrees with what the other packages are made of."""

import base64
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from appliance.settings import Settings
from tests.contract.test_walls import ROOT
from tests.support.nix import Flake
from tests.support.units import unit_sections

pytestmark = pytest.mark.nix

SYSTEMS = ["x86_64-linux", "aarch64-linux"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def flake(tmp_path_factory: pytest.TempPathFactory) -> Flake:
    return Flake(tmp_path_factory.mktemp("flake"))


@pytest.fixture(scope="module")
def packages(flake: Flake) -> Any:
    return flake.outputs("packages")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[str]) -> set[str]:
    """The packages of requirements such as `falcon>=4.0; sys_platform == 'linux'`."""
    return {normal(re.split(r"[^\w.-]", each, maxsplit=1)[0]) for each in requirements}


# -- the flake ---------------------------------------------------------------------------


def test_outputs_exist_for_both_systems(flake, packages):
    done = flake.flake("flake", "show", "--json", f"path:{flake.tree}")
    outputs = json.loads(done.stdout)
    assert set(outputs) == {
        "apps", "checks", "devShells", "nixosModules", "overlays", "packages",
    }  # fmt: skip
    for system in SYSTEMS:
        assert set(packages[system]["drvPaths"]) == {"default", "image", "sparkImage"}
        assert set(outputs["checks"][system]) == {"nixos", "package"}
    for programs in flake.outputs("apps").values():
        assert programs["default"] == programs["agentlip"]
        assert {Path(program).name for program in programs.values()} == {"agentlip", "agentlipd"}
    assert all("ruff" in shell for shell in flake.outputs("devShells").values())


# -- the packages ------------------------------------------------------------------------


def test_dependencies_are_those_of_the_project(packages):
    wanted = {"base": names(PROJECT["project"]["dependencies"])}
    for extra, requirements in PROJECT["project"]["optional-dependencies"].items():
        wanted[extra] = names(requirements)
    dependencies = packages[SYSTEMS[0]]["dependencies"]
    assert {key: {normal(name) for name in each} for key, each in dependencies.items()} == wanted


def pinned() -> dict[tuple[str, str], set[str]]:
    """Hashes of the lock files, by name and version."""
    pins: dict[tuple[str, str], set[str]] = {}
    for name in ("appliance", "export", "spark"):
        text = (ROOT / f"requirements/{name}.txt").read_text(encoding="utf-8")
        for requirement in re.split(r"\n(?=\S)", text):
            if match := re.match(r"([\w.-]+)==(\S+)", requirement):
                hashes = set(re.findall(r"--hash=sha256:(\w+)", requirement))
                pins.setdefault((normal(match[1]), match[2]), set()).update(hashes)
    return pins


@pytest.mark.parametrize("system", SYSTEMS)
def test_versions_and_hashes_are_those_of_the_lock_files(packages, system):
    pins = pinned()
    locked = packages[system]["locked"].values()
    assert len(locked) > 5
    for package in locked:
        known = pins.get((normal(package["pname"]), package["version"]))
        assert known, f"{package['pname']} {package['version']} is in no lock file"
        digest = package["source"]["hash"].removeprefix("sha256-")
        assert base64.b64decode(digest).hex() in known, package["pname"]


def dockerfile(name: str) -> list[tuple[str, str]]:
    """Instructions of a Dockerfile with their arguments, each on one line."""
    text = re.sub(r"(?m)^#.*\n", "", (ROOT / name).read_text(encoding="utf-8"))
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def copied(name: str) -> set[str]:
    return {
        source
        for instruction, arguments in dockerfile(name)
        if instruction == "COPY" and not arguments.startswith("--from")
        for source in arguments.split()[:-1]
    }


def test_module_is_made_of_the_files_that_the_dockerfile_copies(packages):
    wanted = {
        each for each in copied("Dockerfile") if not each.startswith(("requirements/", "ops/"))
    }
    assert set(packages[SYSTEMS[0]]["files"]) == wanted | {"LICENSE"}


@pytest.mark.parametrize(
    ("image", "name"), [("image", "Dockerfile"), ("sparkImage", "spark/Dockerfile")]
)
def test_image_runs_as_its_dockerfile_says(packages, image, name):
    made = packages[SYSTEMS[0]][image]
    config = made["config"]
    stages = re.split(r"(?m)^FROM ", (ROOT / name).read_text(encoding="utf-8"))
    (text,) = [stage for stage in stages if "\nENTRYPOINT" in stage]
    parsed = dict(re.findall(r"(?m)^(ENTRYPOINT|CMD|USER|WORKDIR|VOLUME|EXPOSE) (.*)$", text))
    entrypoint = [Path(word).name for word in json.loads(parsed["ENTRYPOINT"])]
    assert [Path(word).name for word in config["Entrypoint"]] == entrypoint
    assert config["Cmd"] == json.loads(parsed["CMD"])
    assert config["User"] == parsed["USER"]
    assert config["WorkingDir"] == parsed["WORKDIR"]
    assert sorted(config["Volumes"]) == sorted(re.findall(r"/\w+", parsed["VOLUME"]))
    ports = [f"{port}/tcp" for port in parsed.get("EXPOSE", "").split()]
    assert sorted(config.get("ExposedPorts", {})) == ports
    for label in ("title", "description", "licenses"):
        key = f"org.opencontainers.image.{label}"
        assert f'{key}="{config["Labels"][key]}"' in text
    assert made["created"] == "1970-01-01T00:00:01Z"
    uid = parsed["USER"].partition(":")[0]
    assert f"-o {uid} -g {uid}" in made["fakeRootCommands"]
    assert "tini" in made["contents"]


# -- the NixOS module --------------------------------------------------------------------


def as_systemd(value: Any) -> list[str]:
    if isinstance(value, list):
        return [str(each) for each in value]
    return [{True: "yes", False: "no"}.get(value, str(value)) if value is not None else ""]


def unit_of(service: dict[str, Any]) -> dict[str, list[str]]:
    """The options of [Service]; those that systemd joins with spaces are one line."""
    options = {key: as_systemd(value) for key, value in service["serviceConfig"].items()}
    for key in ("RestrictAddressFamilies", "ReadWritePaths"):
        options[key] = [" ".join(options[key])]
    return options


def without_program(unit: dict[str, list[str]]) -> dict[str, list[str]]:
    """The program is in the Nix store; its arguments stay."""
    return unit | {"ExecStart": [unit["ExecStart"][0].split(maxsplit=1)[1]]}


def test_service_is_the_shipped_unit(flake):
    machine = flake.machine(enable=True)
    service = machine["service"]
    shipped = unit_sections((ROOT / "ops/systemd/agentlip.service").read_text(encoding="utf-8"))
    assert without_program(unit_of(service)) == without_program(shipped["Service"])
    assert shipped["Unit"] == {
        "Description": [service["description"]],
        "After": service["after"],
        "StartLimitIntervalSec": [str(service["startLimitIntervalSec"])],
        "StartLimitBurst": [str(service["startLimitBurst"])],
    }
    assert shipped["Install"] == {"WantedBy": service["wantedBy"]}
    assert machine["users"]["agentlip"]["isSystemUser"] is True
    assert machine["ports"] == machine["refusals"] == []
    assert msgspec.convert(machine["settings"], Settings).roles == Settings().roles


def test_settings_are_valid_and_follow_the_options(flake):
    machine = flake.machine(
        enable=True,
        host="10.0.0.5",
        port=8000,
        unsafeNetwork=True,
        openFirewall=True,
        roles=["broker", "backup"],
        backup={"everySeconds": 3600, "directory": "/mnt/backups"},
        settings={"hub": {"max_retopic_batch": 100}, "backup": {"keep_last": 3}},
    )
    settings = msgspec.convert(machine["settings"], Settings)
    assert (settings.http.host, settings.http.port) == ("10.0.0.5", 8000)
    assert settings.http.unsafe_network is True
    running = {role for role, on in msgspec.structs.asdict(settings.roles).items() if on}
    assert running == {"broker", "backup"}
    assert (settings.backup.every_seconds, settings.backup.keep_last) == (3600, 3)
    assert settings.backup.directory == "/mnt/backups"
    assert settings.hub.max_retopic_batch == 100
    assert machine["ports"] == [8000]
    assert machine["service"]["serviceConfig"]["ReadWritePaths"] == [
        "/var/lib/agentlip",
        "/mnt/backups",
    ]
    assert machine["refusals"] == []


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"dataDir": "data"}, 'dataDir must be an absolute path without spaces, for example'),
        ({"dataDir": "/srv/my hub"}, 'it is "/srv/my hub"'),
        ({"dataDir": "/nix/store/abc-hub"}, "dataDir is in the Nix store, which is read-only"),
        ({"host": "0.0.0.0"}, "Keep 127.0.0.1 and put a TLS proxy in front (services.caddy)"),
        ({"openFirewall": True}, 'openFirewall has no effect while services.agentlip.host is'),
        ({"roles": ["webhooks", "hub"]}, 'needs outbox. Add it, or remove "webhooks".'),
    ],
)  # fmt: skip
def test_wrong_choice_is_refused_with_a_remedy(flake, options, refusal):
    refusals = flake.machine(enable=True, **options)["refusals"]
    assert len(refusals) == 1
    assert refusal in refusals[0]
