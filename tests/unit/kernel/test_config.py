"""Settings: file, environment, flags; unknown keys are named."""

import msgspec
import pytest

from appliance.kernel.config import BadSettings, load, secret


class Door(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    port: int = 1
    name: str = "x"
    hosts: list[str] = []


class House(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    door: Door = Door()


class Tree(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    height: int = 1


class Garden(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    trees: tuple[Tree, ...] = ()


class Estate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    door: Door = Door()
    garden: Garden = Garden()


def file(tmp_path, text):
    path = tmp_path / "agentlip.toml"
    path.write_text(text)
    return path


def test_without_anything_the_defaults_hold(tmp_path):
    assert load(House, tmp_path / "none.toml", {}) == House()


def test_later_sources_win(tmp_path):
    path = file(tmp_path, "[door]\nport = 2\nname = 'file'\n")
    environment = {"AGENTLIP_DOOR__PORT": "3", "AGENTLIP_UNRELATED": "x", "OTHER__X": "y"}
    assert load(House, path, environment).door == Door(3, "file")
    assert load(House, path, environment, {"door.port": 4, "door.name": None}).door == Door(
        4, "file"
    )


def test_environment_values_are_json_where_they_parse(tmp_path):
    environment = {"AGENTLIP_DOOR__HOSTS": '["a","b"]', "AGENTLIP_DOOR__NAME": "plain words"}
    assert load(House, None, environment).door == Door(1, "plain words", ["a", "b"])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[door]\nprot = 1\n", "prot"),
        ("[doors]\n", "doors"),
        ("[door]\nport = 'x'\n", "$.door.port"),
        ("door = 3\n", "$.door"),
        ("[door\n", "agentlip.toml"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, named):
    with pytest.raises(BadSettings) as refused:
        load(House, file(tmp_path, text), {})
    assert named in refused.value.message


@pytest.mark.parametrize(
    ("text", "suggested"),
    [
        ("[door]\nprot = 1\n", "; did you mean port?"),
        ("[dor]\n", "; did you mean door?"),
        ("[garden]\nport = 1\n", "; did you mean door.port?"),
        ("[[garden.trees]]\nhigth = 1\n", "; did you mean height?"),
        ("[door]\nnothing_like_it = 1\n", None),
        ("[nothing_like_it]\n", None),
        ("[door]\nport = 'x'\n", None),
    ],
)
def test_an_unknown_key_is_answered_with_one_like_it(tmp_path, text, suggested):
    with pytest.raises(BadSettings) as refused:
        load(Estate, file(tmp_path, text), {})
    if suggested is None:
        assert "did you mean" not in refused.value.message
    else:
        assert refused.value.message.endswith(suggested)


def test_an_unknown_key_of_the_environment_is_answered_with_one_like_it():
    with pytest.raises(BadSettings, match=r"did you mean port\?$"):
        load(Estate, None, {"AGENTLIP_DOOR__PROT": "1"})


def test_a_section_is_not_a_value(tmp_path):
    with pytest.raises(BadSettings):
        load(House, file(tmp_path, "door = 1"), {"AGENTLIP_DOOR__PORT": "1"})


def test_a_secret_comes_from_its_file(tmp_path):
    path = tmp_path / "secret"
    path.write_text("hush\n")
    assert secret(str(path)) == "hush"
    with pytest.raises(BadSettings) as refused:
        secret(str(tmp_path / "absent"))
    assert "hush" not in refused.value.message
