"""The annotated reference says what the code does, and starts an appliance as it is."""

import msgspec
import pytest

from appliance.kernel.config import BadSettings, load
from appliance.settings import Settings
from ops.write_settings import FILE, notes, render

SECTIONS = msgspec.structs.fields(Settings)


def test_reference_is_what_the_code_says():
    assert FILE.read_text(encoding="utf-8") == render(), "stale; run: just settings"


def test_reference_changes_nothing():
    assert load(Settings, FILE, {}) == Settings()


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_every_setting_says_why(section):
    assert [name for name, note in notes(section.type).items() if not note] == []


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_unknown_keys_are_refused_with_their_path(section):
    with pytest.raises(BadSettings, match="nonsense") as refused:
        load(Settings, None, {}, {f"{section.name}.nonsense": 1})
    assert section.name in refused.value.message
