"""Commands in child processes: their settings, their priority, and their end."""

import pytest

from appliance.backup.settings import BackupSettings, TargetSettings
from appliance.child.command import Commands
from appliance.kernel.clock import SystemClock
from appliance.workspace.command_runner import CommandRunner, CommandTooSlow
from appliance.workspace.datadir import DataDir

STORY = """\
import os, pathlib, sys
here = pathlib.Path(os.environ["AGENTLIP_WORKSPACE"])
wanted = sys.argv[1]
if wanted == "facts":
    from appliance.kernel.config import load
    from appliance.settings import Settings
    targets = load(Settings, None, os.environ).backup.targets
    print(len(targets), targets[0].name, os.nice(0), os.getcwd() == str(here))
elif wanted == "key":
    print(os.environ.get("AWS_SECRET_ACCESS_KEY"))
else:
    import signal
    signal.pause()
"""


def runner(path, monkeypatch, section="backup", **more):
    """A runner whose command line is STORY."""
    package = path / "command_line"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(STORY)
    monkeypatch.syspath_prepend(str(path))
    monkeypatch.setattr("appliance.workspace.command_runner.appliance.__name__", "command_line")
    return CommandRunner(DataDir(path), section, BackupSettings(**more), Commands(SystemClock()))


def test_settings_of_the_section_reach_the_command(tmp_path, monkeypatch):
    targets = (TargetSettings(name="disk", url="file:///mnt"),)
    child = runner(tmp_path, monkeypatch, targets=targets)
    done = child.run(["facts"], 60.0, niceness=7)
    assert done.output.decode().split() == ["1", "disk", "7", "True"], done.errors


@pytest.mark.parametrize(("section", "key"), [("backup", b"planted"), ("export", b"None")])
def test_only_a_backup_has_the_keys_of_object_stores(tmp_path, monkeypatch, section, key):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    child = runner(tmp_path, monkeypatch, section)
    assert child.run(["key"], 60.0).output.strip() == key


def test_command_that_is_too_slow_is_stopped_with_a_hint(tmp_path, monkeypatch):
    child = runner(tmp_path, monkeypatch)
    with pytest.raises(CommandTooSlow) as refused:
        child.run(["wait"], 0.5, too_slow_hint="wait longer")
    assert refused.value.hint == "wait longer"
