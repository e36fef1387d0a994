"""The annotated reference says what the code does, and starts an appliance as it is."""

import tomllib
from importlib.resources import files

import pytest
from msgspec.structs import fields

from appliance.kernel.config import BadSettings, load
from appliance.settings import Settings
from doctor.checks.settings import NOT_ABOVE
from ops import write_settings
from ops.write_settings import FILE, notes
from tests.contract.test_walls import ROOT

SECTIONS = fields(Settings)
NAMES = {
    f"{section.name}.{entry.encode_name}" for section in SECTIONS for entry in fields(section.type)
}
TABLE = tomllib.loads((files("appliance.kernel") / "withdrawn_settings.toml").read_text())
WITHDRAWN = [
    *(
        f"{section}.{name}".lstrip(".")
        for section, names in TABLE["constants"].items()
        for name in names
    ),
    *TABLE["replaced"],
]


def test_reference_and_roles_for_nix_are_what_the_code_says():
    rendered = write_settings.render()
    written = {file: (ROOT / file).read_text(encoding="utf-8") for file in rendered}
    assert written == rendered, "stale; run: just settings"


def test_reference_changes_nothing():
    assert load(Settings, ROOT / FILE, {}) == Settings()


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_every_setting_says_why(section):
    assert [name for name, note in notes(section.type).items() if not note] == []


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_unknown_keys_are_refused_with_their_path(section):
    with pytest.raises(BadSettings, match="nonsense") as refused:
        load(Settings, None, {}, {f"{section.name}.nonsense": 1})
    assert section.name in refused.value.message


@pytest.mark.parametrize("setting", WITHDRAWN)
def test_withdrawn_setting_is_refused_with_what_replaces_it(setting):
    section, _, name = setting.rpartition(".")
    flags = {section: [{name: 1}]} if "." in section else {setting: 1}
    with pytest.raises(BadSettings, match="; now ") as refused:
        load(Settings, None, {}, flags)
    assert name in refused.value.message


def test_settings_that_the_doctor_compares_exist():
    assert {f"{section}.{name}" for section, *names in NOT_ABOVE for name in names} <= NAMES


def test_times_are_in_seconds_and_retention_is_in_days():
    others = {name for name in NAMES if name.endswith(("_ms", "_minutes", "_hours", "_days"))}
    times = {name for name in others if not name.endswith("retention_days")}
    assert times == {"notify.quiet_hours", "outbox.max_age_hours"}, "a time of day; the outbox spec"
