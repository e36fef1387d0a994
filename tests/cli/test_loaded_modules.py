"""A command imports only what it needs, so that it starts quickly."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.roles import RolesSettings
from tests.support.commands import environment
from tests.support.hubprocess import HubProcess

PROGRAM = """
import atexit, sys
atexit.register(lambda: sys.stderr.write("\\nloaded " + " ".join(sys.modules)))
from appliance.cli import agentlip
sys.argv = ["agentlip", *sys.argv[1:]]
agentlip()
"""
SERVER = frozenset({
    "alembic", "apprise", "cryptography", "doctor", "falcon", "gevent", "nacl", "peewee",
    "prometheus_client",
})  # fmt: skip
READING = frozenset({"version", "channel list"})
FOR_REQUESTS = frozenset({"http.client", "ssl", "secrets", "appliance.hub.fulltext"})
EVERYWHERE = frozenset({"audit", "cli", "cli_streams", "cli_support", "commands", "kernel"})
CONNECTED = EVERYWHERE | {"sdk", "workspace"}
COMMANDS = {
    "version": EVERYWHERE | {"build"},
    "status": CONNECTED | {"process", "operations"},
    "channel list": CONNECTED | {"hub", "busfile"},
    "outbox list": CONNECTED | {"outbox"},
    "courier stats": CONNECTED | {"courier"},
    "jobs list": CONNECTED | {"jobs"},
    "ask list": CONNECTED | {"hub"},
}


@pytest.mark.parametrize(("words", "packages"), COMMANDS.items(), ids=COMMANDS)
def test_command_loads_its_own_packages_only(
    hub: HubProcess, words: str, packages: frozenset[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words.split()],
        cwd=hub.workspace, env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    loaded = done.stderr.rpartition("\nloaded ")[2].split()
    assert SERVER.isdisjoint(name.partition(".")[0] for name in loaded)
    assert words not in READING or FOR_REQUESTS.isdisjoint(loaded)
    own = {name.split(".")[1] for name in loaded if name.startswith("appliance.")}
    assert own <= packages


def test_served_hub_loads_no_module_of_a_role_that_is_off(tmp_path: Path) -> None:
    others = [role for role in RolesSettings.__struct_fields__ if role != "hub"]
    settings = "[roles]\n" + "".join(f"{role} = false\n" for role in others)
    (tmp_path / "agentlip.toml").write_text(settings)
    hub = HubProcess(tmp_path)
    hub.environment["PYTHONPROFILEIMPORTTIME"] = "1"  # writes each module's name to the log
    with hub.running():
        pass
    loaded = read_imports(hub.log.read_text(errors="replace"))
    assert "appliance.hub.service" in loaded
    parts = {name for name in loaded if name.endswith((".checks", ".service", ".engine"))}
    own = {"checks", "hub.service", "hub.bounds.service", "tokens.service"}
    assert {name for name in parts if name.startswith("appliance.")} == {
        f"appliance.{name}" for name in own
    }


def test_writer_process_loads_only_what_writes() -> None:
    ours, theirs = socket.socketpair()
    arguments = [str(os.getpid()), "info", "1.0", str(theirs.fileno())]
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-Pm", "appliance.kernel.writerchild", *arguments],
            env=environment(), pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    ours.close()  # ends the process
    loaded = read_imports(process.communicate(timeout=60)[1])
    assert process.returncode == 0
    assert "appliance.kernel.writer" in loaded
    assert loaded.isdisjoint({"ast", "falcon", "gevent", "inspect", "typing_extensions"})


def read_imports(text: str) -> set[str]:
    lines = text.splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
