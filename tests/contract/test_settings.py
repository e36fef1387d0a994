"""The annotated reference says what the code does, and starts an appliance as it is."""

import re

import pytest
import typer
from msgspec.structs import fields

from appliance.kernel.config import BadSettings, load
from appliance.settings import Settings
from doctor.checks.settings import NOT_ABOVE
from ops import write_settings
from ops.write_settings import FILE, notes
from tests.contract.test_hints import PROGRAMS
from tests.contract.test_walls import ROOT

SECTIONS = fields(Settings)
NAMES = {
    f"{section.name}.{entry.encode_name}" for section in SECTIONS for entry in fields(section.type)
}


def test_reference_and_roles_for_nix_are_what_the_code_says():
    rendered = write_settings.render()
    written = {file: (ROOT / file).read_text(encoding="utf-8") for file in rendered}
    assert written == rendered, "stale; run: just settings"


def test_reference_changes_nothing():
    assert load(Settings, ROOT / FILE, {}) == Settings()


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_every_setting_says_why(section):
    assert [name for name, note in notes(section.type).items() if not note] == []


@pytest.mark.parametrize("source", ["file", "environment", "flag"])
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_unknown_key_is_refused_with_the_nearest_known_one(section, source, tmp_path):
    name = section.encode_name
    known = {f"{name}.{field.encode_name}": field.encode_name for field in fields(section.type)}
    for path, nearest in {**known, name: name}.items():
        wrong = path + path[-1]
        key = wrong if "." in wrong else f"{wrong}.port"
        file, variable = tmp_path / "agentlip.toml", f"AGENTLIP_{key.replace('.', '__').upper()}"
        file.write_text(f"{key} = 1\n" if source == "file" else "")
        environment = {variable: "1"} if source == "environment" else {}
        with pytest.raises(BadSettings) as refused:
            load(Settings, file, environment, {key: 1} if source == "flag" else None)
        assert refused.value.message.endswith(f"; did you mean {nearest}?")
        assert f"`{wrong.rpartition('.')[2]}`" in refused.value.message
        assert (variable in refused.value.message) == (source == "environment")


def test_settings_that_the_doctor_compares_exist():
    assert {f"{section}.{name}" for section, *names in NOT_ABOVE for name in names} <= NAMES


def test_times_are_in_seconds_and_retention_is_in_days():
    others = {name for name in NAMES if name.endswith(("_ms", "_minutes", "_hours", "_days"))}
    times = {name for name in others if not name.endswith("retention_days")}
    assert times == {"notify.quiet_hours", "outbox.max_age_hours"}, "a time of day; the outbox spec"


def help_texts(command):
    yield command.help or ""
    yield from (getattr(parameter, "help", None) or "" for parameter in command.params)
    if hasattr(command, "list_commands"):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from help_texts(command.get_command(context, name))


def test_settings_named_in_help_exist():
    sections = "|".join(section.name for section in SECTIONS)
    named = re.compile(rf"(?<![\w./-])(?:{sections})\.[a-z]+_[a-z_]+")
    texts = [text for program in PROGRAMS.values() for text in help_texts(program)]
    mentioned = {name for text in texts for name in named.findall(text)}
    assert "export.retention_days" in mentioned
    assert mentioned <= NAMES
