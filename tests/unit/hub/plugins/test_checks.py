"""The doctor's look at plugins: what the running appliance says of them."""

from pathlib import Path

import pytest

from tests.doctor.workspace import WorkspaceFixture

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
def test_broken_or_unisolated_plugin_is_found(
    tmp_path: Path, facts: dict[str, float], working: list[str], isolation: list[str]
) -> None:
    workspace = WorkspaceFixture(tmp_path)
    with workspace.running():
        assert workspace.live is not None
        whole = HEALTHY_PLUGIN | facts
        workspace.live |= {f"plugin.my-plugin.{name}": value for name, value in whole.items()}
        assert severities(workspace, "plugins.working") == working
        assert severities(workspace, "plugins.isolation") == isolation
        findings = workspace.find("plugins.working") + workspace.find("plugins.isolation")
        assert {finding.subject for finding in findings} <= {"plugin my-plugin"}


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ('builtin = "urls"', []),
        ('module = "good.py"', []),
        ('module = "none.py"', ["warning"]),
        ('module = "out.py"', ["warning"]),
        ('module = "none.py"\nrequired = true', ["error"]),
        ('module = "none.py"\nenabled = false', []),
        ('modul = "good.py"', []),  # settings.file reports it
    ],
)
def test_missing_plugin_module_is_found(tmp_path: Path, own: str, expected: list[str]) -> None:
    workspace = WorkspaceFixture(tmp_path)
    (tmp_path / "good.py").write_text("")
    (tmp_path / "out.py").symlink_to("/etc/hostname")
    text = f'[[plugins.use]]\nname = "p"\ntype = "linkifier"\n{own}\n'
    workspace.data.settings_file.write_text(text)
    assert severities(workspace, "plugins.modules") == expected


def severities(workspace: WorkspaceFixture, name: str) -> list[str]:
    return [finding.severity.value for finding in workspace.find(name)]
