"""A settings file that is not read is told, and keeps nothing from working."""

from pathlib import Path

from doctor.run import is_ready, readiness
from tests.doctor.house import House


def test_settings_of_another_program_are_told_and_leave_it_ready(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.data.unread_settings_file.write_text("export default {}\n")
    (finding,) = house.find("settings.unread")
    assert (finding.severity.value, finding.subject) == ("warning", "agentlip.config.ts")
    assert str(house.data.settings_file) in finding.hint
    with house.running(), house.context() as context:
        assert is_ready(readiness(context))
