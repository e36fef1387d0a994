"""Settings: file, environment, flags; unknown keys are named."""

import msgspec
import pytest

from appliance.kernel.config import BadSettings, load, secret


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    port: int = 1
    name: str = "x"
    hosts: list[str] = []


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    http: Section = Section()


def file(tmp_path, text):
    path = tmp_path / "agentlip.toml"
    path.write_text(text)
    return path


def test_later_source_overrides_an_earlier_one(tmp_path):
    path = file(tmp_path, "[http]\nport = 2\nname = 'file'\n")
    environment = {"AGENTLIP_HTTP__PORT": "3", "AGENTLIP_UNRELATED": "x", "OTHER__X": "y"}
    assert load(Example, path, environment).http == Section(3, "file")
    assert load(Example, path, environment, {"http.port": 4, "http.name": None}).http == Section(
        4, "file"
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[http]\nprot = 1\n", "prot"),
        ("[doors]\n", "doors"),
        ("[http]\nport = 'x'\n", "$.http.port"),
        ("http = 3\n", "$.http"),
        ("[http\n", "agentlip.toml"),
    ],
)
def test_error_names_the_wrong_setting(tmp_path, text, named):
    with pytest.raises(BadSettings) as refused:
        load(Example, file(tmp_path, text), {})
    assert named in refused.value.message


def test_secret_is_read_from_its_file(tmp_path):
    path = tmp_path / "secret"
    path.write_text("hush\n")
    assert secret(str(path)) == "hush"
    with pytest.raises(BadSettings) as refused:
        secret(str(tmp_path / "absent"))
    assert "hush" not in refused.value.message
