"""`agentlipd install-service` and `uninstall-service`."""

import json
from pathlib import Path
from typing import Any

import pytest

from appliance.workspace.datadir import DataDir
from tests.support.commands import CommandOutput, agentlipd

pytestmark = pytest.mark.slow


class ServiceFixture:
    """A workspace and a user's own folder of units."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "50% work space"
        self.workspace.mkdir()
        self.units = folder / "config" / "systemd" / "user"
        self.env = {"XDG_CONFIG_HOME": str(folder / "config")}

    def __call__(self, *words: Any) -> CommandOutput:
        return agentlipd(*words, cwd=self.workspace, **self.env)

    def install(self, name: str = "agentlip") -> Path:
        done = self("install-service", "--name", name)
        assert done.code == 0, done
        return self.units / f"{name}.service"


@pytest.fixture
def service(tmp_path: Path) -> ServiceFixture:
    return ServiceFixture(tmp_path)


def test_uninstall_removes_the_unit_and_keeps_the_data(service: ServiceFixture) -> None:
    unit, other = service.install(), service.install("other")
    link = service.units / "default.target.wants" / unit.name
    link.parent.mkdir()
    link.symlink_to(unit)
    done = service("uninstall-service", "--json")
    assert done.code == 0, done
    assert done.json["removed"] == [str(link), str(unit)]
    assert not unit.exists()
    assert not link.is_symlink()
    assert other.exists()
    assert DataDir(service.workspace).database("hub").exists()
    second = service("uninstall-service", "--json")
    assert second.code == 0
    assert second.json["removed"] == []
    assert "there is no service" in service("uninstall-service", "--user").out
    assert f"removed {other}" in service("uninstall-service", "--name", "other").out


def test_only_a_service_of_this_workspace_is_removed(
    service: ServiceFixture, tmp_path: Path
) -> None:
    unit = service.install()
    elsewhere = agentlipd("uninstall-service", "--json", cwd=tmp_path, **service.env)
    assert elsewhere.code == 2
    error = json.loads(elsewhere.err)
    assert error["code"] == "OTHER_SERVICE"
    assert error["details"]["workspace"] == str(service.workspace)
    assert unit.exists()
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    foreign = service("uninstall-service", "--json")
    assert foreign.code == 2
    assert json.loads(foreign.err)["code"] == "OTHER_SERVICE"
    assert unit.exists()
