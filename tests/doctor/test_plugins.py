"""The doctor's look at plugins: what the running appliance says of them."""

from pathlib import Path

import pytest

from tests.doctor.house import House

HEALTHY_PLUGIN = {"broken": 0.0, "paused": 0.0, "lag_events": 5.0, "lag_events_max": 9.0}


@pytest.mark.parametrize(
    ("facts", "working", "isolation"),
    [
        ({}, [], []),
        ({"broken": 1.0}, ["warning"], []),
        ({"paused": 1.0}, ["warning"], []),
        ({"lag_events": 10.0}, ["warning"], []),
        ({"unisolated": 1.0}, [], ["warning"]),
    ],
)
def test_a_plugin_that_does_not_work_or_is_not_shut_in_is_found(
    tmp_path: Path, facts: dict[str, float], working: list[str], isolation: list[str]
) -> None:
    house = House(tmp_path)
    with house.running():
        assert house.live is not None
        whole = HEALTHY_PLUGIN | {"unisolated": 0.0} | facts
        house.live |= {f"plugin.my-plugin.{name}": value for name, value in whole.items()}
        assert severities(house, "plugins.working") == working
        assert severities(house, "plugins.isolation") == isolation
        found = house.find("plugins.working") + house.find("plugins.isolation")
        assert {one.subject for one in found} <= {"plugin my-plugin"}


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
