"""What the section [roles] of the settings says; tests/http/test_roles.py has what follows."""

import pytest

from appliance.kernel.config import BadSettings, load
from appliance.roles import NEEDS, RolesSettings
from appliance.settings import Settings
from appliance.workspace.datadir import STORES

ROLES = RolesSettings.__struct_fields__
OFF = {role: f"roles.{role}" for role in ROLES if not getattr(RolesSettings(), role)}


def only(*roles):
    return RolesSettings(**{role: role in roles for role in ROLES})


@pytest.mark.parametrize("role", ROLES)
def test_role_that_is_off_switches_off_those_that_need_it(role):
    needing = [other for other, needed in NEEDS.items() if role in needed]
    off = RolesSettings(**{role: False}).off
    assert off == dict.fromkeys([role, *needing], f"roles.{role}") | OFF


def test_identity_is_off_without_outbox_and_inbox():
    assert RolesSettings(outbox=False, inbox=False).off["identity"] == "roles.outbox"
    assert set(only("broker").off) == {*ROLES, "identity"} - {"broker"}
    assert only("broker").stores == ("auth", "broker")
    assert RolesSettings().stores == tuple(store for store in STORES if store not in OFF)
    assert RolesSettings(relay=True).stores == STORES


@pytest.mark.parametrize(("role", "needed"), [(a, b) for a in NEEDS for b in NEEDS[a]])
def test_role_set_to_true_without_what_it_needs_is_refused(role, needed):
    with pytest.raises(BadSettings) as refused:
        load(Settings, None, {}, {f"roles.{role}": True, f"roles.{needed}": False})
    assert refused.value.message == (
        f"settings: roles.{role} is true, but it needs {needed}, and roles.{needed} is false"
    )
    assert refused.value.hint == f"set roles.{needed} = true, or remove roles.{role}"
    assert role in load(Settings, None, {}, {f"roles.{needed}": False}).roles.off
    others = {other: setting for other, setting in OFF.items() if other != role}
    assert load(Settings, None, {}, {f"roles.{role}": True}).roles.off == others
