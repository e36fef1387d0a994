"""`agentlipd install-service` in CI, and `uninstall-service`, where systemd does not run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from appliance.identity.mode import PASSING
from appliance.kernel.datadir import DataDir
from tests.support.commands import Done, agentlipd

pytestmark = pytest.mark.slow

OUTSIDE_CI = dict.fromkeys(("CI", *PASSING), "")


class Place:
    """A workspace and a user's own folder of units."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "50% work space"
        self.workspace.mkdir()
        self.units = folder / "config" / "systemd" / "user"
        self.env = {**OUTSIDE_CI, "XDG_CONFIG_HOME": str(folder / "config")}

    def __call__(self, *words: Any, env: Mapping[str, str] | None = None) -> Done:
        return agentlipd(*words, cwd=self.workspace, **{**self.env, **(env or {})})

    def install(self, name: str = "agentlip") -> Path:
        done = self("install-service", "--no-enable", "--name", name)
        assert done.code == 0, done
        return self.units / f"{name}.service"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("variable", ["CI", "GITHUB_ACTIONS"])
def test_no_service_is_installed_in_ci_unless_it_is_allowed(place: Place, variable: str) -> None:
    ci = {variable: "true"}
    refused = place("install-service", "--no-enable", "--json", env=ci)
    assert refused.code == 2
    told = json.loads(refused.err)
    assert (told["code"], told["details"]) == ("SERVICE_IN_CI", {"variable": variable})
    assert "--allow-ci-persistent" in told["hint"]
    assert not place.units.exists()
    assert not (place.workspace / ".agentlip").exists()
    assert place("install-service", "--print", env=ci).code == 0
    words = ("install-service", "--no-enable", "--allow-ci-persistent")
    assert place(*words, env=ci).code == 0
    assert (place.units / "agentlip.service").exists()


def test_what_was_installed_is_removed_and_the_data_stay(place: Place) -> None:
    unit, other = place.install(), place.install("other")
    link = place.units / "default.target.wants" / unit.name
    link.parent.mkdir()
    link.symlink_to(unit)
    done = place("uninstall-service", "--json")
    assert done.code == 0, done
    assert done.json["removed"] == [str(link), str(unit)]
    assert not unit.exists()
    assert not link.is_symlink()
    assert other.exists()
    assert DataDir(place.workspace).database("hub").exists()
    again = place("uninstall-service", "--json")
    assert again.code == 0
    assert again.json["removed"] == []
    assert "there is no service" in place("uninstall-service", "--user").out
    assert f"removed {other}" in place("uninstall-service", "--name", "other").out


def test_only_a_service_of_this_workspace_is_removed(place: Place, tmp_path: Path) -> None:
    unit = place.install()
    elsewhere = agentlipd("uninstall-service", "--json", cwd=tmp_path, **place.env)
    assert elsewhere.code == 2
    told = json.loads(elsewhere.err)
    assert told["code"] == "OTHER_SERVICE"
    assert told["details"]["workspace"] == str(place.workspace)
    assert unit.exists()
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    foreign = place("uninstall-service", "--json")
    assert foreign.code == 2
    assert json.loads(foreign.err)["code"] == "OTHER_SERVICE"
    assert unit.exists()


def test_a_bad_name_is_refused_by_what_it_is(place: Place) -> None:
    assert "letters" in place("uninstall-service", "--name", "../x").err
