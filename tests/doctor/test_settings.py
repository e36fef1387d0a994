"""Checks of agentlip.toml, of its secret files, and of settings files of other programs."""

from pathlib import Path

import msgspec
import pytest

from appliance.checks.settings import DoctorSettings
from appliance.settings import Settings
from doctor.checks.settings import NOT_ABOVE
from doctor.current_settings import CurrentSettings


def test_settings_are_read_again_after_the_file_changed(tmp_path: Path) -> None:
    file = tmp_path / "agentlip.toml"
    current = CurrentSettings(DoctorSettings(disk_error_percent=7), file)
    assert current.get().disk_error_percent == 7
    file.write_text("[doctor]\ndisk_error_percent = 8\n[http]\nnonsense = 1\n")
    assert current.get().disk_error_percent == 8
    file.write_text("[doctor]\ndisk_error_percent = 'many'\n")
    assert current.get().disk_error_percent == 8
    file.unlink()
    assert current.get() == DoctorSettings()


def test_settings_that_contradict_each_other_are_found(workspace) -> None:
    """The defaults agree. Each pair is found, by the names of both settings."""
    file = workspace.data.settings_file
    file.write_text("")
    assert workspace.find("settings.file") == []
    defaults = msgspec.to_builtins(Settings())
    for section, low, high in NOT_ABOVE:
        limit = defaults[section][high]
        file.write_text(f"[{section}]\n{low} = {limit + 1}\n")
        findings = workspace.find("settings.file")
        matches = [each for each in findings if each.subject == f"{section}.{low}"]
        assert [each.severity.value for each in matches] == ["warning"], low
        text = f"{section}.{low} is {limit + 1}, above {section}.{high}, which is {limit}"
        assert matches[0].message == text
    file.write_text("[backup]\nkeep_last = 0\nkeep_hourly = 0\nkeep_daily = 0\n")
    (finding,) = workspace.find("settings.file")
    assert (finding.subject, finding.problem) == ("backup.keep_last", "contradictory")
    assert "backup.keep_last and backup.keep_hourly and" in finding.message


@pytest.mark.parametrize(
    ("settings", "subjects"),
    [
        ("[limits]\nper_connection = 1\nglobal = 2", ["limits.per_connection", "limits.global"]),
        ("[limits]\nglobal = 5000000", ["limits.global"]),
        ("[limits]\nfailures_per_address = 0\n[http]\nhost = '0.0.0.0'\nunsafe_network = true",
         ["limits.failures_per_address"]),
        ("[limits]\nper_connection = 0\nglobal = 0\nfailures_per_address = 0", []),
        ("[limits]\nper_connection = 5\nper_token = 1", []),
    ],
)  # fmt: skip
def test_absurd_rate_limits_are_found_and_limits_that_are_off_on_loopback_are_not(
    workspace, settings, subjects
) -> None:
    workspace.data.settings_file.write_text(settings)
    findings = workspace.find("settings.file")
    assert [finding.subject for finding in findings] == subjects
    assert {finding.problem for finding in findings} <= {"absurd-limit"}
