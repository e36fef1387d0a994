"""Every way to install without containers, with the commands of the README, from nothing."""

import asyncio
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.support.commands import ROOT
from tests.support.hubprocess import HubProcess, served
from tests.support.installs import Installed, Packages, blocks
from tests.support.until import until
from tests.support.workspaces import Filled

pytestmark = pytest.mark.slow
SERVER_MODULES = {"falcon", "gevent", "gunicorn", "peewee", "prometheus_client", "pyarrow"}
USER, GROUP = "nobody", "nogroup"
POST = """
from agentlip.sdk import Client, NewMessage
with Client() as hub:
    channel = hub.create_channel("installed").channel
    topic = hub.create_topic(channel.id, "first").topic
    hub.send_messages([NewMessage(topic.id, "me", "hello")])
    print([each.content_raw for each in hub.tail_messages(topic.id)])
"""
LOADED = """
import sys
from importlib.metadata import packages_distributions
{statement}
owners = packages_distributions()
print(sorted({{name.partition(".")[0] for name in sys.modules}} & set(owners)))
"""
MCP = """
from agentlip.cli import agentlip
sys.argv = ["agentlip", "mcp"]
try:
    agentlip()
except SystemExit:
    pass
"""
ALWAYS_LOADED = {"agentlip", "msgspec", "typing_extensions", "_distutils_hack"}
WALK = """
import importlib, pkgutil
import agentlip.sdk as sdk
EXTRAS = "agentlip.sdk.network.", "agentlip.sdk.langgraph", "agentlip.sdk.openai_agents"
for module in pkgutil.walk_packages(sdk.__path__, "agentlip.sdk."):
    if not module.name.startswith(EXTRAS):
        importlib.import_module(module.name)
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    return Packages(tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="module")
def light(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """What an agent installs."""
    home = tmp_path_factory.mktemp("light")
    return Installed(packages, home, blocks()["agent"])


@pytest.fixture(scope="module")
def server(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """What a server installs; its commands also start the appliance."""
    home = tmp_path_factory.mktemp("server")
    installed = Installed(packages, home, blocks()["server"])
    yield installed
    installed.shell("agentlipd down")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with served(tmp_path_factory.mktemp("hub")) as running:
        yield running


def declared() -> set[str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        wanted = tomllib.load(file)["project"]["dependencies"]
    return {line.partition(">")[0] for line in wanted}


# -- for agents ----------------------------------------------------------------------------


def test_light_install_has_what_is_declared_and_no_server(light: Installed) -> None:
    listed = json.loads(light.shell("pip list --format json"))
    assert {"agentlip", *declared()} <= {each["name"].lower() for each in listed}
    find = f"print([name for name in {SERVER_MODULES} if find_spec(name)])"
    assert light.python(f"from importlib.util import find_spec\n{find}") == "[]"


def test_installed_files_are_below_one_package(light: Installed) -> None:
    program = (
        "from importlib.metadata import files\n"
        "print(sorted({str(f).split('/')[0] for f in files('agentlip')}))"
    )
    version = light.shell("agentlip --version").split()[1]
    assert eval(light.python(program)) == ["..", "agentlip", f"agentlip-{version}.dist-info"]


@pytest.mark.parametrize(
    ("statement", "more"),
    [
        ("import agentlip.sdk", set()),
        (WALK, {"websockets", "rfc8785"}),
        (MCP, None),
    ],
    ids=["sdk", "all of the sdk", "mcp"],
)  # fmt: skip
def test_modules_that_are_loaded(light: Installed, statement: str, more: set[str] | None) -> None:
    loaded = set(eval(light.python(LOADED.format(statement=statement))))
    assert "agentlip" in loaded
    assert loaded & SERVER_MODULES == set()
    if more is not None:
        assert loaded - ALWAYS_LOADED <= more


def test_light_install_reads_a_workspace_and_starts_no_server(
    light: Installed, tmp_path: Path
) -> None:
    filled = Filled(tmp_path / "workspace", messages=3)
    there = f"cd {shlex.quote(str(filled.path))} &&"
    rows = light.shell(f"{there} agentlip msg tail --topic-id {filled.topic_id} --json")
    assert [row["content_raw"] for row in json.loads(rows)] == [
        "message 2", "message 1", "message 0"
    ]  # fmt: skip
    light.shell(f"agentlip init {tmp_path / 'new'}")
    light.shell(f"{there} agentlip listen", expect=3)
    light.shell(f"{there} agentlip doctor --help")
    assert "Free disk space." in light.shell("agentlip doctor explain host.disk:full")
    never_served = light.shell(f"{there} agentlip export segments --format jsonl", expect=3)
    assert "has no epoch yet" in never_served
    light.shell(f"{there} agentlip export segments", expect=18)
    assert "agentlip[appliance]" in light.shell(f"{there} agentlipd up", expect=1)
    agent = "--relay http://127.0.0.1:9 --endpoint https://anna.example.org/network/inbox"
    made = light.shell(f"{there} agentlip network init anna {agent}", expect=3)
    assert "pip install 'agentlip[network]'" in made


def test_agent_posts_over_mcp(light: Installed, hub: HubProcess) -> None:
    assert "uvx agentlip mcp" in blocks()["agent-once"]
    uvx = str(Path(sys.executable).parent / "uvx")
    words = [uvx, "agentlip", "mcp", "--workspace", str(hub.workspace)]
    command = StdioServerParameters(
        command="/usr/bin/env", args=words, env=light.variables, cwd=str(light.home)
    )

    async def talk() -> str:
        async with Client(stdio_client(command)) as client:
            channel = await client.call_tool("create_channel", {"name": "mcp"})
            channel_id = channel.structured_content["channel_id"]
            topic = {"channel": channel_id, "title": "t"}
            made = (await client.call_tool("create_topic", topic)).structured_content
            message = {"topic_id": made["topic_id"], "sender": "agent", "content": "by uvx"}
            assert not (await client.call_tool("post_message", message)).is_error
            return str(made["topic_id"])

    topic = asyncio.run(talk())
    (posted,) = hub.request("GET", f"/api/v1/messages?topic_id={topic}")["messages"]
    assert posted["content_raw"] == "by uvx"


# -- for servers ---------------------------------------------------------------------------


def test_installed_server_takes_messages(server: Installed) -> None:
    assert server.python(POST) == "['hello']"
    assert json.loads(server.shell("agentlip doctor --json"))


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder that every user can enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def as_user(command: list[str], **more: Any) -> "subprocess.Popen[bytes]":
    """Starts it as the unit does: as its user, without any capability."""
    drop = [
        "setpriv", f"--reuid={USER}", f"--regid={GROUP}", "--clear-groups", "--no-new-privs",
        "--bounding-set=-all", "--inh-caps=-all",
    ]  # fmt: skip
    return subprocess.Popen(
        [*drop, "/usr/bin/env", *command], env={"PATH": "/usr/bin:/bin"}, **more
    )


def interpreter() -> str:
    """One that other users may run: this one may be in the folder of a user."""
    return next(
        path
        for path in (sys.executable, "/usr/bin/python3")
        if as_user([path, "-c", ""], stderr=subprocess.DEVNULL).wait(60) == 0
    )


@pytest.mark.root
def test_unit_of_systemd_serves_as_its_user(light: Installed, readable: Path) -> None:
    home, state = readable / "venv", readable / "state"
    uv = Path(sys.executable).parent / "uv"
    light.shell(f"{uv} venv -q --python {interpreter()} {home}")
    light.shell(f"{uv} pip install -q --python {home} 'agentlip[appliance]'")
    state.mkdir(mode=0o750)
    shutil.chown(state, USER, GROUP)
    unit = (ROOT / "ops/systemd/agentlip.service").read_text()
    unit = unit.replace("/var/lib/agentlip", str(state))
    unit = unit.replace("/opt/agentlip/.venv", str(home))
    unit = unit.replace("User=agentlip", f"User={USER}").replace("Group=agentlip", f"Group={GROUP}")
    file = readable / "agentlip.service"
    file.write_text(unit)
    subprocess.run(["systemd-analyze", "verify", str(file)], check=True, timeout=60)
    (start,) = re.findall(r"(?m)^ExecStart=(.*)$", unit)
    command = ["AGENTLIP_HTTP__PORT=0", *shlex.split(start)]
    process = as_user(command, cwd=state, umask=0o077)
    try:
        status = [str(home / "bin/agentlip"), "status", "--workspace", str(state)]
        until(lambda: ended(process) or light.ends_well(status), what="the service is ready")
        written = [path for path in (state / ".agentlip").rglob("*") if path.is_file()]
        assert {(path.owner(), path.stat().st_mode & 0o077) for path in written} == {(USER, 0)}
    finally:
        process.terminate()
        code = process.wait(60)
    assert code == 0


def ended(process: "subprocess.Popen[bytes]") -> bool:
    assert process.poll() is None, "the service ended"
    return False
