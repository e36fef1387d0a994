"""Checks of the member key: break, find; a legal key finds nothing."""

import io
import json
import os

import pytest

from appliance.identity.service import Identity
from appliance.identity.settings import IdentitySettings
from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from tests.doctor.house import House


@pytest.fixture
def house(tmp_path):
    house = House(tmp_path)
    settings = IdentitySettings(mode="persistent", host_id="here")
    log, clock = Log(io.BytesIO()), SystemClock()
    house.key = Identity.load(house.data, settings, clock, log, dict(os.environ))
    house.data.settings_file.write_text('[identity]\nhost_id = "here"\n')
    return house


def file(house, name):
    return house.data.dir / "identity" / name


def test_a_legal_key_is_healthy(house):
    house.key.rotate(lambda _old, _new: {})
    for name in ("private", "keypair", "machine"):
        assert house.find(f"identity.{name}") == []


@pytest.mark.parametrize("name", ["", "keypair.json", "host_fingerprint.json"])
def test_files_that_others_may_read_are_found(house, name):
    path = file(house, name)
    path.chmod(path.stat().st_mode | 0o040)
    (found,) = house.find("identity.private")
    assert "chmod go=" in found.hint


@pytest.mark.parametrize("text", ["", "{}", "nonsense", '{"ed25519_seed": "zz"}'])
def test_a_key_that_cannot_be_read_is_found(house, text):
    file(house, "keypair.json").write_text(text)
    (found,) = house.find("identity.keypair")
    assert found.severity.value == "error"


def test_an_unfinished_rotation_is_found(house):
    file(house, "keypair-next.json").write_text("{}")
    (found,) = house.find("identity.keypair")
    assert found.hint == "agentlip identity rotate"


def test_another_machine_is_found(house):
    house.data.settings_file.write_text('[identity]\nhost_id = "elsewhere"\n')
    (found,) = house.find("identity.machine")
    assert "copy" in found.sentence
    stored = file(house, "host_fingerprint.json")
    stored.write_text(json.dumps({}))
    assert house.find("identity.machine") == []
