"""`agentlipd install-service` and `uninstall-service`."""

import json
from pathlib import Path

import pytest

from tests.support.commands import agentlipd

pytestmark = pytest.mark.slow


def test_only_a_service_of_this_workspace_is_removed(tmp_path: Path) -> None:
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    workspace = tmp_path / "50% work space"
    workspace.mkdir()
    assert agentlipd("install-service", cwd=workspace, **env).code == 0
    unit = tmp_path / "config/systemd/user/agentlip.service"
    elsewhere = agentlipd("uninstall-service", "--json", cwd=tmp_path, **env)
    assert elsewhere.code == 2
    error = json.loads(elsewhere.err)
    assert error["code"] == "OTHER_SERVICE"
    assert error["details"]["workspace"] == str(workspace)
    assert unit.exists()
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    foreign = agentlipd("uninstall-service", "--json", cwd=workspace, **env)
    assert foreign.code == 2
    assert json.loads(foreign.err)["code"] == "OTHER_SERVICE"
    assert unit.exists()
