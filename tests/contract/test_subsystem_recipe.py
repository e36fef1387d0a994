"""The recipe "a subsystem" of CONTRIBUTING, followed: a folder of its own and two lines elsewhere.

The copy of the tree is served, and every part of the new subsystem is called: store, route, scope,
socket, loop, setting, metric, check, repair, command, tool, log, backup rules, restore hook,
role, and a store that others write too.
"""

import json
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from appliance.workspace.datadir import DataDir
from tests.contract.test_walls import ROOT
from tests.support.commands import environment
from tests.support.servedhub import Client
from tests.support.shared_board import OtherProgram
from tests.support.socketclient import SocketClient
from tests.support.until import until

pytestmark = pytest.mark.slow

TOY = ROOT / "tests" / "support" / "toy"
# (file, the line before, the new line)
ELSEWHERE = [
    (
        "appliance/composition.py",
        "from appliance.operations.rates import RatesSubsystem",
        "from appliance.toy.subsystem import ToySubsystem",
    ),
    (
        "appliance/composition.py",
        '    Row("bus", builders.build_bus),',
        '    Row("toy", lambda built: ToySubsystem(built.host)),',
    ),
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    target = tmp_path_factory.mktemp("tree")
    for name in ("appliance", "doctor", "migrations"):
        kept_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, target / name, ignore=kept_out)
    for folder in TOY.iterdir():
        shutil.copytree(folder, target / folder.name, ignore=kept_out, dirs_exist_ok=True)
    for name, before, line in ELSEWHERE:
        file = target / name
        lines = file.read_text(encoding="utf-8").split("\n")
        lines.insert(lines.index(before) + 1, line)
        file.write_text("\n".join(lines), encoding="utf-8")
    assert len(ELSEWHERE) <= 2
    (target / "ops").mkdir()
    writers = ("write_models", "write_declared", "write_paths")  # as CONTRIBUTING says
    for name in ("generated", "size", *writers):
        shutil.copy(ROOT / "ops" / f"{name}.py", target / "ops")
    for writer in writers:
        written = run(target, f"ops.{writer}")
        assert written.returncode == 0, written
    return target


def run(tree, module, *arguments):
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=tree, env=environment(PYTHONPATH=str(tree)), capture_output=True, check=False,
    )  # fmt: skip


@contextmanager
def serve(tree, workspace, settings="[toy]\nnotes_max = 2\n"):
    (workspace / "agentlip.toml").write_text(settings)
    log = workspace / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "appliance.server", "--workspace", str(workspace)],
            cwd=tree, env=environment(PYTHONPATH=str(tree)), stdout=out, stderr=out,
        )  # fmt: skip
    try:
        until(lambda: DataDir(workspace).read_server() or process.poll() is not None, 60, "it runs")
        assert process.poll() is None, log.read_text(encoding="utf-8")
        yield workspace
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def served(tree, tmp_path_factory):
    with serve(tree, tmp_path_factory.mktemp("workspace")) as workspace:
        yield workspace


@pytest.fixture(scope="module")
def port(served):
    return DataDir(served).read_server().port


@pytest.fixture(scope="module")
def client(served, port):
    """There are two notes already, as many as the settings allow."""
    client = Client(port, DataDir(served).read_token())
    assert client.post("/toy/v1/notes", {"text": "a"}).status == 201
    assert client.post("/toy/v1/notes", {"text": "b"}).body == {"notes": ["a", "b"]}
    yield client
    client.close()


def test_the_tree_keeps_its_layers(tree):
    script = (
        "import grimp, json; from tests.contract.layers import offences;"
        "graph = grimp.build_graph('appliance', 'doctor', cache_dir=None);"
        "print(json.dumps([list(offences(graph)), 'appliance.toy.service' in graph.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tree, env=environment(PYTHONPATH=f"{tree}:{ROOT}"), capture_output=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == [[], True]


def test_toy_has_route_store_setting_and_scope(client, port):
    refused = client.post("/toy/v1/notes", {"text": "c"})
    assert (refused.status, refused.body["code"]) == (429, "TOO_MANY_NOTES")
    stranger = Client(port, None)
    assert stranger.get("/toy/v1/notes").status == 200, "free on loopback"
    assert stranger.post("/toy/v1/notes", {"text": "d"}).status == 401
    issued = client.post("/api/v1/tokens", {"name": "reader", "scopes": ["toy:read"]})
    assert issued.status == 201, issued.body
    stranger.token = issued.body["secret"]
    assert stranger.post("/toy/v1/notes", {"text": "d"}).status == 403
    stranger.close()


def test_toy_socket_sends_note_count(client, port):
    with SocketClient(port, None, path="/toy/v1/count") as socket:
        assert socket.recv() == {"notes": 2}


def test_toy_metric_and_loop_are_counted(client):
    text = client.get("/metrics").raw.decode()
    assert "agentlip_toy_notes_total 2.0" in text
    assert 'agentlip_loop_rounds_total{loop="toy_counter"} 1.0' in text
    assert 'agentlip_store_queue_jobs{store="toy"} 0.0' in text


def test_toy_facts_and_check_are_reported(client, tree, served):
    assert client.get("/-/ready").body["facts"]["toy.notes"] == 2.0
    done = run(tree, "doctor", "--workspace", served, "--json", "--run", "toy.room")
    assert b"there are 2 notes" in done.stdout, done


def test_toy_tool_lists_notes(client):
    call = {"name": "toy_list", "arguments": {}}
    answer = client.post(
        "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    )
    assert answer.body["result"]["structuredContent"] == {"notes": ["a", "b"]}


def test_toy_log_is_exported_as_segment(client, tree, served):
    done = run(tree, "appliance", "--workspace", served, "export", "segments")
    assert b"toy: 2 rows in 1 segments" in done.stdout, done


def test_toy_reads_store_that_other_programs_write(client, served):
    assert client.get("/toy/v1/notices").body["code"] == "STORE_ABSENT"
    program = OtherProgram(served / ".board" / "notices.db")
    program.write("foreign")
    assert client.get("/toy/v1/notices").body == {"notes": ["foreign"]}
    program.process.communicate()


def test_toy_command_lists_notes(client, tree, served):
    done = run(tree, "appliance", "--workspace", served, "toy", "list")
    assert done.stdout == b"a\nb\n", done


def test_toy_repair_restore_and_role_work(tree, tmp_path):
    with serve(tree, tmp_path):
        client = Client(DataDir(tmp_path).read_server().port, DataDir(tmp_path).read_token())
        assert client.post("/toy/v1/notes", {"text": "a "}).status == 201
        made = run(tree, "appliance", "--workspace", tmp_path, "backup", "create")
        assert b"0 messages, 1 note, " in made.stdout, made
        assert client.post("/toy/v1/notes", {"text": "lost later"}).status == 201
        client.close()
    for command, printed in (
        (("doctor", "repair", "--run", "toy.blanks", "--yes"), b"trimmed 1 notes"),
        (("backup", "restore", "--latest", "--yes"), b"lost later"),
    ):
        done = run(tree, "appliance", "--workspace", tmp_path, *command)
        assert printed in done.stdout, done
    with serve(tree, tmp_path, "[roles]\ntoy = false\n"):
        client = Client(DataDir(tmp_path).read_server().port, DataDir(tmp_path).read_token())
        assert client.get("/toy/v1/notes").body["code"] == "ROLE_OFF"
        client.close()
