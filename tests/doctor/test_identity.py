"""Checks of the member key: break, find; a legal key finds nothing."""

import io
import json
import os

import pytest

from appliance.identity.service import MemberIdentity
from appliance.identity.settings import IdentitySettings
from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from tests.doctor.workspace import WorkspaceFixture


@pytest.fixture
def workspace(tmp_path):
    workspace = WorkspaceFixture(tmp_path)
    settings = IdentitySettings(mode="persistent", host_id="here")
    log, clock = Log(io.BytesIO()), SystemClock()
    workspace.key = MemberIdentity.load(workspace.data, settings, clock, log, dict(os.environ))
    workspace.data.settings_file.write_text('[identity]\nhost_id = "here"\n')
    return workspace


def file(workspace, name):
    return workspace.data.dir / "identity" / name


def test_normal_key_has_no_findings(workspace):
    workspace.key.rotate(lambda _old, _new: {})
    for name in ("private", "keypair", "machine"):
        assert workspace.find(f"identity.{name}") == []


@pytest.mark.parametrize("name", ["", "keypair.json", "host_fingerprint.json"])
def test_files_readable_by_others_are_found(workspace, name):
    path = file(workspace, name)
    path.chmod(path.stat().st_mode | 0o040)
    (finding,) = workspace.find("identity.private")
    assert "chmod go=" in finding.hint


@pytest.mark.parametrize("text", ["", "{}", "nonsense", '{"ed25519_seed": "zz"}'])
def test_unreadable_key_is_found(workspace, text):
    file(workspace, "keypair.json").write_text(text)
    (finding,) = workspace.find("identity.keypair")
    assert finding.severity.value == "error"


def test_unfinished_rotation_is_found(workspace):
    file(workspace, "keypair-next.json").write_text("{}")
    (finding,) = workspace.find("identity.keypair")
    assert finding.hint == "agentlip identity rotate"


def test_changed_machine_is_found(workspace):
    workspace.data.settings_file.write_text('[identity]\nhost_id = "elsewhere"\n')
    (finding,) = workspace.find("identity.machine")
    assert "copy" in finding.message
    stored = file(workspace, "host_fingerprint.json")
    stored.write_text(json.dumps({}))
    assert workspace.find("identity.machine") == []
