"""Settings: file, environment, flags; unknown keys are named."""

import msgspec
import pytest

from appliance.kernel.config import BadSettings, load, secret
from appliance.settings import Settings


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


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("MAIL__USER", "12345", "12345"),
        ("MAIL__USER", "true", "true"),
        ("MAIL__USER", '"12345"', "12345"),
        ("MAIL__USER", " [x] ", "[x]"),
        ("EXPORT__TARGET", "1.5", "1.5"),
        ("JOBS__CONTAINER_SOCKET", "1", "1"),
        ("HTTP__ALLOWED_HOSTS", "hub.example.org", ("hub.example.org",)),
        (
            "HTTP__ALLOWED_HOSTS",
            "a.example.org, b.example.org,",
            ("a.example.org", "b.example.org"),
        ),
        ("HTTP__ALLOWED_HOSTS", '["a.example.org"]', ("a.example.org",)),
        ("HTTP__ALLOWED_HOSTS", "[]", ()),
        ("HTTP__TRUSTED_PROXIES", "10", ("10",)),
        ("HTTP__TRUSTED_PROXIES", "[::1]", ("[::1]",)),
        *(("HTTP__UNSAFE_NETWORK", text, True) for text in ("True", "TRUE", "yes", "on", "1")),
        *(("HTTP__UNSAFE_NETWORK", text, False) for text in ("False", "no", "Off", "0", "", " ")),
        ("HTTP__PORT", "", None),
        ("HTTP__PORT", " 7464 ", 7464),
        ("HTTP__PORT", "null", None),
        ("LOG__LEVEL", "DEBUG", "debug"),
        ("LOG__SLOW_SECONDS", "2", 2),
        ("STORE__SYNCHRONOUS", "full", "FULL"),
        ("LIMITS__GLOBAL", "0", 0),
    ],
)
def test_variable_is_read_as_its_field(variable, text, value):
    section, name = variable.lower().split("__")
    settings = getattr(load(Settings, None, {f"AGENTLIP_{variable}": text}), section)
    assert getattr(settings, name.replace("global", "global_")) == value


def given_defaults():
    """(section, field, variable, text, value): each default as text and as JSON."""
    for section in msgspec.structs.fields(Settings):
        default = section.type()
        for field in msgspec.structs.fields(section.type):
            value = getattr(default, field.name)
            name = f"AGENTLIP_{section.encode_name}__{field.encode_name}".upper()
            plain = {str(value)} if isinstance(value, bool | int | float | str) else set()
            for text in {*plain, msgspec.json.encode(value).decode()} if value is not None else ():
                yield section.name, field.name, name, text, value


def test_each_setting_can_be_given_by_a_variable():
    wrong = [
        (name, text)
        for section, field, name, text, value in given_defaults()
        if getattr(getattr(load(Settings, None, {name: text}), section), field) != value
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("HTTP__PORT", "eighty"), ("HTTP__PORT", "99999"), ("HTTP__PROT", "1"), ("DOORS__X", "1"),
        ("HTTP__UNSAFE_NETWORK", "perhaps"), ("LOG__LEVEL", "loud"), ("OUTBOX__BROKERS", "x"),
        ("OUTBOX__BROKERS", "[1]"), ("HTTP__PORT__X", "1"), ("HTTP__PORT", "\udcff"),
        ("HTTP__ALLOWED_HOSTS", "a,\udcff"),
        ("HTTP__CONNECTIONS_MAX", "[" * 5000),
    ],
)  # fmt: skip
def test_error_names_the_variable(tmp_path, variable, text):
    path = file(tmp_path, "[http]\nport = 2\n")
    with pytest.raises(BadSettings) as refused:
        load(Settings, path, {"AGENTLIP_HTTP__HOST": "::1", f"AGENTLIP_{variable}": text})
    assert f"settings: AGENTLIP_{variable}: " in refused.value.message


def test_variables_of_other_programs_are_ignored(tmp_path):
    kubernetes = {"AGENTLIP_PORT": "tcp://10.0.0.1:7464", "AGENTLIP_PORT_7464_TCP_ADDR": "10.0.0.1"}
    assert load(Settings, None, kubernetes) == Settings()
    wrong = file(tmp_path, "[http]\nport = 'x'\n")
    with pytest.raises(BadSettings) as refused:
        load(Settings, wrong, {"AGENTLIP_HTTP__HOST": "::1"})
    assert "AGENTLIP" not in refused.value.message


def test_secret_is_read_from_its_file(tmp_path):
    path = tmp_path / "secret"
    path.write_text("hush\n")
    assert secret(str(path), "file") == "hush"
    with pytest.raises(BadSettings) as refused:
        secret(str(tmp_path / "absent"), "file")
    assert "hush" not in refused.value.message
