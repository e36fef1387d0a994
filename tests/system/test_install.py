"""`pip install .` into an empty environment: the command line and the SDK, and no server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.test_scripts import clone, run

pytestmark = pytest.mark.slow
HERE = Path(sys.executable).parent


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    """The `bin` of an environment that has only what `pip install .` installs."""
    tree = clone(tmp_path_factory.mktemp("clone"))
    path = tmp_path_factory.mktemp("light")
    subprocess.run([sys.executable, "-m", "venv", path], check=True)
    done = run(path / "bin/pip", "install", "--disable-pip-version-check", tree)
    assert done.returncode == 0, done.stdout
    return path / "bin"


@pytest.fixture
def workspace(tmp_path):
    """One that an appliance serves, started by the full environment."""
    up = run(HERE / "agentlipd", "up", "--workspace", tmp_path)
    assert up.returncode == 0, up.stdout
    yield tmp_path
    run(HERE / "agentlipd", "down", "--workspace", tmp_path)


def test_no_server_library_comes_along(light):
    listed = run(light / "pip", "list", "--format", "json").stdout.splitlines()
    names = {
        item["name"].lower() for line in listed if line[:1] == "[" for item in json.loads(line)
    }
    assert {"agentlip", "msgspec", "typer", "websockets"} <= names
    heavy = {"falcon", "gevent", "gunicorn", "peewee", "prometheus-client", "prometheus_client"}
    assert names & heavy == set()


def test_sending_reading_and_the_sdk_work_without_the_server(light, workspace):
    def agentlip(*words):
        done = run(light / "agentlip", *words, "--workspace", workspace)
        assert done.returncode == 0, done.stdout
        return done.stdout

    agentlip("channel", "create", "general")
    agentlip("topic", "create", "--channel", "general", "hello")
    agentlip(
        "msg",
        "send",
        "--channel",
        "general",
        "--topic",
        "hello",
        "--sender",
        "me",
        "--content",
        "light",
    )
    assert run(light / "agentlipd", "down", "--workspace", workspace).returncode == 0

    # Nobody serves any more: reading goes straight to the file.
    output = agentlip("msg", "tail", "--channel", "general", "--topic", "hello", "--json")
    assert "light" in output
    modules = "import pkgutil, importlib, appliance.sdk as sdk\n" + (
        "for m in pkgutil.walk_packages(sdk.__path__, 'appliance.sdk.'):"
        " importlib.import_module(m.name)"
    )
    assert run(light / "python", "-c", modules).returncode == 0


def test_starting_a_server_that_is_not_installed_names_the_command(light, tmp_path):
    up = run(light / "agentlipd", "up", "--workspace", tmp_path)
    assert up.returncode != 0
    assert "Traceback" not in up.stdout
    assert "agentlip[appliance]" in up.stdout
