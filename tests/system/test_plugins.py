"""Plugins in the shipped image: one that tries to write into the data directory fails, and
where nothing would stop it, it is not run."""

import json

import pytest

from tests.support.until import until
from tests.system.box import message

pytestmark = [pytest.mark.container, pytest.mark.slow]

EVIL = """
import os
DATA = "/data/.agentlip"
def tried(path, mode):
    try:
        open(os.path.join(DATA, path), mode)
        return [path + " " + mode]
    except OSError:
        return []
def enrich(message, config):
    done = []
    for path in ("token", "db.sqlite3", "db.sqlite3-wal", "server.json", "new", "locks/new"):
        for mode in ("r+", "w", "a", "r"):
            done += tried(path, mode)
    for name, act in (
        ("unlink", lambda: os.unlink(DATA + "/token")),
        ("rename", lambda: os.rename(DATA, "/data/elsewhere")),
        ("truncate", lambda: os.truncate(DATA + "/db.sqlite3", 0)),
        ("mkdir", lambda: os.mkdir(DATA + "/folder")),
    ):
        try:
            act()
            done.append(name)
        except OSError:
            pass
    return [{"kind": "tried", "span": {"start": 0, "end": 1},
             "data": {"done": done, "uid": os.getuid()}}]
"""
SETTINGS = """
[[plugins.use]]
name = "evil"
type = "linkifier"
module = "plugins/evil.py"
[[plugins.use]]
name = "urls"
type = "extractor"
builtin = "urls"
"""
NO_LANDLOCK = json.dumps(
    {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            {"names": ["landlock_create_ruleset"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}
        ],
    }
)


def with_plugins(appliance):
    """Written by the image's own user, as an operator would; read at the next start."""
    appliance.start()
    appliance.sh("mkdir -p /data/plugins")
    for path, text in (("plugins/evil.py", EVIL), ("agentlip.toml", SETTINGS)):
        appliance.sh(f"cat >/data/{path} <<'END'\n{text}\nEND")
    appliance.signal("SIGTERM")
    assert appliance.exit_code() == 0
    appliance.restart()
    return appliance


def listed(appliance, name):
    status, body = appliance.request("GET", "/api/v1/plugins")
    assert status == 200, body
    return next(item for item in body["plugins"] if item["name"] == name)


def posted(appliance):
    """A message that both plugins have something to say about."""
    _, reply = appliance.request(
        "POST", "/api/v1/messages", message(appliance.topic(), "https://example.com/x")
    )
    return reply["message"]["id"]


def tried(appliance, message_id):
    path = f"/api/v1/messages/{message_id}/enrichments"
    return until(
        lambda: appliance.request("GET", path)[1]["enrichments"], 20, "what the plugin tried"
    )[0]["data"]


def test_a_plugin_that_tries_fails_in_the_image(box, volume):
    appliance = with_plugins(box(volume()))
    token = appliance.token
    results = tried(appliance, posted(appliance))
    assert results == {"done": [], "uid": 10001}  # the appliance's own user: Landlock alone
    isolation = listed(appliance, "evil")["isolation"]
    assert isolation["landlock"] >= 3
    assert isolation["seccomp"]
    steps = ("network", "subprocesses", "processes", "namespaces", "shared_memory", "survival")
    assert {isolation[step] for step in steps} == {"denied"}
    assert (isolation["write"], isolation["read"], isolation["user"]) == ("denied", "denied", None)
    assert appliance.sh("cat /data/.agentlip/token").strip() == token
    until(lambda: listed(appliance, "urls")["done"] == 1, 20, "the built-in one")
    assert "shut in" in appliance.sh("agentlip plugin list")
    assert "not be kept" not in appliance.output()


def test_without_landlock_it_is_not_run_and_that_is_said(box, volume):
    """An engine whose filter refuses Landlock: nothing is claimed that is not there."""
    appliance = with_plugins(box(volume(), seccomp=NO_LANDLOCK))
    message_id = posted(appliance)
    until(lambda: listed(appliance, "evil")["state"] == "paused", 20, "a pause")
    results = listed(appliance, "evil")
    assert "kept from accessing .agentlip/" in results["reason"]
    assert (results["isolation"]["write"], results["isolation"]["landlock"]) == ("open", 0)
    _, body = appliance.request("GET", f"/api/v1/messages/{message_id}/enrichments")
    assert body["enrichments"] == []
    assert '"outcome":"unisolated"' in appliance.output()
    assert "plugins.isolation" in appliance.sh("agentlip doctor --json", expect=None)


def test_as_root_a_plugin_is_another_user_also_without_landlock(box, volume):
    powers = ["SETUID", "SETGID", "DAC_OVERRIDE", "KILL"]
    words = ("up", "--as-root")  # the image gives the volume to its own user
    appliance = with_plugins(box(volume(), *words, seccomp=NO_LANDLOCK, user="0", cap_add=powers))
    assert appliance.sh("id -u").strip() == "0"
    assert tried(appliance, posted(appliance)) == {"done": [], "uid": 65534}
    isolation = listed(appliance, "evil")["isolation"]
    assert (isolation["landlock"], isolation["write"], isolation["user"]) == (0, "denied", 65534)
