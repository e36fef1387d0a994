"""No command ends in a traceback, whatever is wrong with its folder, files and variables."""

import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from appliance import cli, cli_daemon
from appliance.cli_support import run
from tests.support.command_outputs import every_command
from tests.support.commands import ROOT, command

pytestmark = pytest.mark.slow

NOBODY = 65_534
# These start a server or change the machine: the second test has them.
STARTING = {
    f"agentlipd {word}" for word in ("up", "run", "restart", "install-service", "uninstall-service")
}
SECONDS_MAX = 5
DATA, SETTINGS = ".agentlip", "agentlip.toml"


def delete(folder):
    (folder / "gone").mkdir()
    os.chdir(folder / "gone")
    (folder / "gone").rmdir()


def make_unreadable(name):
    def change(folder):
        (folder / name).touch(mode=0o000)
        (folder / name).chmod(0o000)

    return change


hide_data = make_unreadable(DATA)


def write(name, data):
    return lambda folder: (folder / name).write_bytes(data)


def give_away(folder):
    for path in (folder, folder / DATA, *(folder / DATA).iterdir()):
        os.chown(path, NOBODY - 1, NOBODY - 1)


def replace_data_by_a_file(folder):
    (folder / DATA).rename(folder / "was")
    (folder / DATA).write_text("x")


def close_streams(_):
    os.closerange(0, 3)
    sys.stdin = sys.stdout = sys.stderr = None


REMOTE = {"AGENTLIP_URL": "http://127.0.0.1:1"}
# What is wrong, the variables, and whether root runs the commands.
SURROUNDINGS = {
    "the data of another user": (give_away, {}, True),
    "the current folder was deleted": (delete, {}, False),
    "a folder of data that can't be read": (make_unreadable(DATA), {}, False),
    "a named workspace that can't be read": (hide_data, {"AGENTLIP_WORKSPACE": "."}, False),
    "a store that can't be read": (make_unreadable(f"{DATA}/db.sqlite3"), {}, False),
    "a token that can't be read": (make_unreadable(f"{DATA}/token"), {}, False),
    "settings that can't be read": (make_unreadable(SETTINGS), {}, False),
    "settings that are not TOML": (write(SETTINGS, b"[http\n"), {}, False),
    "settings that are not UTF-8": (write(SETTINGS, b"# \xff\n"), {}, False),
    "a file in place of the data": (replace_data_by_a_file, {}, False),
    "a store that is not SQLite": (write(f"{DATA}/db.sqlite3", b"x" * 5000), {}, False),
    "a workspace that does not exist": (bool, {"AGENTLIP_WORKSPACE": "/nowhere"}, False),
    "a token file that is a folder": (bool, {**REMOTE, "AGENTLIP_TOKEN_FILE": "/"}, False),
    "a token in typographic quotes": (bool, {**REMOTE, "AGENTLIP_TOKEN": "“abc”"}, False),
    "standard streams that are closed": (close_streams, {}, False),
    "a variable that is not UTF-8": (bool, {"AGENTLIP_HTTP__HOST": "\udcff"}, False),
}


def words_for(name, command):
    words = name.split()[1:]
    for parameter in command.params:
        if not parameter.required:
            continue
        kind = parameter.type
        choices = getattr(kind, "choices", None)
        sample = next(iter(choices)) if choices else "1" if kind.name != "text" else "x"
        option = [max(parameter.opts, key=len)] if parameter.param_type_name == "option" else []
        words += [*option, str(getattr(sample, "value", sample))] * max(1, parameter.nargs)
    return words


def enter(folder, change, variables, as_root):
    """In a child: be there, as a user who is not root unless `as_root`."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    os.chdir(folder)
    for name in [name for name in os.environ if name.startswith("AGENTLIP_")]:
        del os.environ[name]
    os.environ.update({"HOME": str(folder), **variables})
    change(folder)
    if not as_root and os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def sweep():
    """Run every command; what raised, and the exit codes of the others."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    raised, codes = {}, {}
    for name, known in every_command():
        if name in STARTING:
            continue
        program = name.partition(" ")[0]
        app = cli.app if program == "agentlip" else cli_daemon.app
        signal.alarm(SECONDS_MAX)
        try:
            codes[name] = run(app, words_for(name, known), program)
        except BaseException:
            raised[name] = traceback.format_exc()[-1500:]
        finally:
            signal.alarm(0)
    return raised, codes


def start_servers():
    """Start, restart and stop the appliance, and print its service: what each prints."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "AGENTLIP_HTTP__PORT": "0"}
    printed = {}
    for words in (["up"], ["restart"], ["install-service", "--print"], ["down"]):
        done = subprocess.run(
            command("agentlipd", *words), env=variables, capture_output=True, timeout=60
        )
        printed[words[0]] = [done.returncode, (done.stdout + done.stderr).decode()]
    return printed


def in_child(folder, surroundings, function):
    """The result of the function in these surroundings, below a new workspace."""
    if SURROUNDINGS[surroundings][0] is give_away and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    assert run(cli.app, ["init", str(folder)], "agentlip") == 0
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY if os.geteuid() == 0 else -1, -1)
    for above in list(folder.parents)[:3]:
        if above.name.startswith("pytest-"):
            above.chmod(0o755)
    result = folder.parent / f"{folder.name}.json"
    report = os.open(result, os.O_WRONLY | os.O_CREAT)
    child = os.fork()
    if child == 0:
        try:
            enter(folder, *SURROUNDINGS[surroundings])
            os.write(report, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.close(report)
    os.waitpid(child, 0)
    return json.loads(Path(result).read_text())


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_no_command_ends_in_a_traceback(tmp_path_factory, surroundings):
    raised, codes = in_child(tmp_path_factory.mktemp("broken"), surroundings, sweep)
    assert len(codes) + len(raised) > 150
    assert raised == {}
    if SURROUNDINGS[surroundings][0] is hide_data:
        assert codes["agentlip jobs list"] == 1, "not 3: nobody knows whether a hub runs"


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_no_start_of_the_appliance_ends_in_a_traceback(tmp_path_factory, surroundings):
    printed = in_child(tmp_path_factory.mktemp("starting"), surroundings, start_servers)
    assert {code for code, _ in printed.values()} <= {0, 1, 3, 4}
    for code, text in printed.values():
        assert "Traceback" not in text
        assert code == 0 or "Error: " in text or "not running" in text, printed


@pytest.mark.parametrize(("words", "code"), [("version", 1), ("doctor", 3)])
def test_output_without_space_is_named(tmp_path, words, code):
    assert run(cli.app, ["init", str(tmp_path)], "agentlip") == 0
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("agentlip", words), cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=full, stderr=subprocess.PIPE, check=False, timeout=60,
        )  # fmt: skip
    assert (done.returncode, done.stderr[:50].decode()) == (
        code, "Error: the output can't be written: no space left ",
    )  # fmt: skip
