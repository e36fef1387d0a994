"""The check of agentlip.toml: settings that contradict each other."""

import msgspec
import pytest

from appliance.settings import Settings
from doctor.checks.settings import NOT_ABOVE
from tests.support.commands import agentlipd, start_that_ends


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


REFUSED_AT_START = {
    "notify.to: mailto:": '[notify]\nto = ["mailto:ops@example.com"]',
    "notify.to: topic:": '[roles]\nhub = false\n[notify]\nto = ["topic:ops/alerts"]',
    "notify.quiet_hours": '[notify]\nquiet_hours = "22:00-07:00 Europe/Wien"',
    "mail.sender": '[mail]\nhost = "mail.example.com"',
    "mail.user": '[mail]\nhost = "mail.example.com"\nsender = "a@example.com"\nuser = "a"',
    "mail.ca_file": '[mail]\nhost = "mail.example.com"\nsender = "a@example.com"\n'
    'ca_file = "/nowhere.pem"',
    "mail.allow": '[mail]\nhost = "mail.example.com"\nsender = "a@example.com"\nallow = ["@"]',
    "ask.mail_to": '[ask]\nmail_to = ["ops@example.com"]',
    "http.trusted_proxies": '[http]\ntrusted_proxies = ["proxy"]',
    "courier.triggers": '[[courier.triggers]]\nid = "a"\ndo = [{action = "emit", name = "n"}]',
    "plugins.use: two": '[[plugins.use]]\nname = "a"\ntype = "linkifier"\nbuiltin = "urls"\n'
    '[[plugins.use]]\nname = "a"\ntype = "linkifier"\nbuiltin = "urls"',
    "outbox.brokers: mesh": '[[outbox.brokers]]\nmesh = "m"\nurl = "https://a.example.com"\n' * 2,
    "inbox.brokers: mesh": '[[outbox.brokers]]\nmesh = "m"\nurl = "https://a.example.com"\n'
    '[[inbox.brokers]]\nmesh = "m"\nurl = "https://b.example.com"',
    "outbox.in_order": '[[outbox.in_order]]\nto = "??"',
    "feature_param_below_floor": "[outbox]\ndedupe_retention_days = 2",
}


@pytest.mark.parametrize("setting", REFUSED_AT_START)
def test_settings_that_the_start_refuses_are_found(workspace, setting: str) -> None:
    workspace.data.settings_file.write_text(REFUSED_AT_START[setting])
    (finding,) = workspace.find("settings.file")
    assert finding.problem == "invalid"
    assert setting in finding.message
    refused = start_that_ends(workspace.data.workspace)
    assert refused.code == 1
    assert finding.message.partition(": ")[2] in refused.err
    restarted = agentlipd("restart", cwd=workspace.data.workspace)
    assert setting in restarted.err, "a running appliance would have been stopped for it"


def test_settings_of_the_environment_count(workspace, monkeypatch) -> None:
    workspace.data.settings_file.write_text(REFUSED_AT_START["notify.to: mailto:"])
    monkeypatch.setenv("AGENTLIP_MAIL__HOST", "mail.example.com")
    monkeypatch.setenv("AGENTLIP_MAIL__SENDER", "appliance@example.com")
    assert workspace.find("settings.file") == []


def test_settings_that_fail_later_are_found(workspace) -> None:
    workspace.talk()
    file = workspace.data.settings_file
    file.write_text('[notify]\nto = ["topic:general/one", "topic:general/my alerts"]')
    (finding,) = workspace.find("settings.file")
    assert (finding.problem, finding.subject) == ("unusable", "notify.to")
    assert "topic general/my alerts" in finding.message
    assert finding.hint.endswith("agentlip topic create 'my alerts' --channel general")
    file.write_text('[backup]\nrecipients = ["age1wrong"]')
    (finding,) = workspace.find("settings.file")
    assert (finding.problem, finding.subject) == ("unusable", "backup.recipients")
    assert "age1wrong" in finding.message
