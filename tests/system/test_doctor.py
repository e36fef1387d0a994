"""The doctor inside the shipped image, whose root is read-only."""

import json

import pytest

from tests.support.until import until
from tests.system.box import message, stop

pytestmark = [pytest.mark.container, pytest.mark.slow]


SETTINGS = """
[[plugins.use]]
name = "urls"
type = "extractor"
builtin = "urls"

[[plugins.use]]
name = "references"
type = "linkifier"
builtin = "references"

[[plugins.use]]
name = "own"
type = "linkifier"
module = "plugins/own.py"
"""
OWN = "def enrich(message, config): return []"
KILL = """
for each in /proc/[0-9]*; do
    if grep -qs 'plugins[.]child' $each/cmdline && kill -9 ${each#/proc/} 2>/dev/null; then
        echo killed
    fi
done
"""


@pytest.fixture
def kept(box, volume):
    """A volume with settings and a plugin."""
    name = volume()
    appliance = box(name).start()
    appliance.sh(f"mkdir /data/plugins; echo '{OWN}' >/data/plugins/own.py")
    appliance.sh(f"cat >/data/agentlip.toml <<'END'\n{SETTINGS}\nEND")
    stop(appliance)
    return name


def reported(text):
    """What the doctor reports above info, as sentences."""
    return [
        f"{check['check']}: {each['subject']}: {each['sentence']}"
        for check in json.loads(text)["checks"]
        for each in check["findings"]
        if each["severity"] != "info"
    ]


def test_the_doctor_reports_nothing_in_a_read_only_container_with_plugins(box, kept):
    appliance = box(kept).start()
    assert "Read-only" in appliance.sh("touch /file 2>&1", expect=1)
    topic = appliance.topic()

    def talk():
        text = "https://example.com/ src/app.py:1"
        assert appliance.request("POST", "/api/v1/messages", message(topic, text))[0] == 201

        def is_read():
            _, body = appliance.request("GET", "/api/v1/plugins")
            return all(each["lag"] == 0 and not each["pending"] for each in body["plugins"])

        until(is_read, what="the plugins have read it")

    def assert_silent():
        for flags in ("", "--all"):
            assert reported(appliance.sh(f"agentlip doctor --json --strict {flags}")) == []

    talk()
    assert_silent()
    assert appliance.sh(KILL).split().count("killed") >= 3  # more while one is replaced
    assert_silent()
    talk()
    assert_silent()
