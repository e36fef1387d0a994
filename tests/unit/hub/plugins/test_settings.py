"""Settings of plugins: what is refused, and their page of the documentation."""

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from appliance.hub.plugins import source
from appliance.hub.plugins.settings import PluginSettings
from appliance.kernel.config import BadSettings, load
from appliance.settings import Settings


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "A B"}, "name"),
        ({"type": "poem"}, "type"),
        ({"builtin": "none"}, "builtin"),
        ({"modul": "x"}, "modul"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
    ],
)
def test_invalid_settings_are_refused_by_name(wrong, message):
    own = {"name": "a", "type": "linkifier", "builtin": "urls", **wrong}
    with pytest.raises(BadSettings, match=message):
        load(Settings, None, {}, {"plugins.use": [own]})


def test_guide_lists_every_plugin_setting_and_built_in():
    page = (Path(__file__).parents[4] / "docs/how-to/plugins.md").read_text(encoding="utf-8")
    fields = re.findall(r"(?m)^\| `(\w+)` \| [^|]* \| [^|]* \|$", page)
    assert set(PluginSettings.__struct_fields__) <= set(fields)
    files = {path.stem for path in source.BUILTIN.glob("[a-z]*.py")}
    assert set(re.findall(r"(?m)^\| `(\w+)` \| (?:extractor|linkifier)", page)) == files
    kinds = msgspec.structs.fields(PluginSettings)
    [builtin] = [field.type for field in kinds if field.name == "builtin"]
    assert {name for item in get_args(builtin) for name in get_args(item)} == files
