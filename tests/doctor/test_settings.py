"""The check of agentlip.toml: settings that contradict each other."""

import msgspec

from appliance.settings import Settings
from doctor.checks.settings import NOT_ABOVE


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
