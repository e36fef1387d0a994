"""The doctor's look at plugins: what the running appliance says of them."""

from pathlib import Path

import pytest

from appliance.hub.plugins.wire import Isolation, gaps
from doctor.checks.plugins import MEANING
from tests.doctor.house import House

HEALTHY_PLUGIN = {"broken": 0.0, "paused": 0.0, "lag_events": 5.0, "lag_events_max": 9.0}


@pytest.mark.parametrize(
    ("facts", "working", "isolation"),
    [
        ({}, [], []),
        ({"broken": 1.0}, ["warning"], []),
        ({"paused": 1.0}, ["warning"], []),
        ({"lag_events": 10.0}, ["warning"], []),
        ({"open_write": 1.0}, [], ["warning"]),
        ({"open_survival": 1.0, "open_namespaces": 1.0}, [], ["warning"]),
        ({"open_root": 1.0}, [], ["warning"]),
        ({"open_root": 1.0, "open_read": 1.0}, [], ["warning", "warning"]),
    ],
)
def test_a_plugin_that_does_not_work_or_is_not_shut_in_is_found(
    tmp_path: Path, facts: dict[str, float], working: list[str], isolation: list[str]
) -> None:
    house = House(tmp_path)
    with house.running():
        assert house.live is not None
        whole = HEALTHY_PLUGIN | facts
        house.live |= {f"plugin.my-plugin.{name}": value for name, value in whole.items()}
        assert severities(house, "plugins.working") == working
        assert severities(house, "plugins.isolation") == isolation
        found = house.find("plugins.working") + house.find("plugins.isolation")
        assert {one.subject for one in found} <= {"plugin my-plugin"}


def test_every_gap_has_words_of_its_own(tmp_path: Path) -> None:
    """What the appliance can name, the doctor can say."""
    allowed = {"files", "root"}  # chosen by the settings; said apart
    assert {*gaps(Isolation(), network=False, subprocesses=False)} - allowed == set(MEANING)
    house = House(tmp_path)
    with house.running():
        assert house.live is not None
        house.live |= {f"plugin.p.open_{name}": 1.0 for name in MEANING}
        (found,) = house.find("plugins.isolation")
        assert all(words in found.sentence for words in MEANING.values())


@pytest.mark.parametrize(
    ("own", "found"),
    [
        ('builtin = "urls"', []),
        ('module = "good.py"', []),
        ('module = "none.py"', ["warning"]),
        ('module = "out.py"', ["warning"]),
        ('module = "none.py"\nrequired = true', ["error"]),
        ('module = "none.py"\nenabled = false', []),
        ('modul = "good.py"', ["error"]),
    ],
)
def test_a_module_that_is_not_there_is_found(tmp_path: Path, own: str, found: list[str]) -> None:
    house = House(tmp_path)
    (tmp_path / "good.py").write_text("")
    (tmp_path / "out.py").symlink_to("/etc/hostname")
    text = f'[[plugins.use]]\nname = "p"\ntype = "linkifier"\n{own}\n'
    house.data.settings_file.write_text(text)
    assert severities(house, "plugins.modules") == found


def severities(house: House, name: str) -> list[str]:
    return [finding.severity.value for finding in house.find(name)]
