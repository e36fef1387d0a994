"""`run`: the heartbeat and the claims of a task live as long as a command."""

import os
import pty
import signal
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from appliance.busfile import claims
from appliance.busfile.file import connect
from appliance.busfile.worker import run
from appliance.kernel.errors import Invalid
from tests.support.commands import command, environment
from tests.support.until import until


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 128 + 15)]
)
def test_exit_code_is_that_of_the_command(team, script, code):
    team.to("WORKING")
    assert run.run_command(team.team, "t", ["sh", "-c", script]) == code
    assert team.types()[-1] == "agent_stopped"


def test_claims_of_the_task_are_renewed_while_they_run(team, monkeypatch):
    team.to("WORKING")
    monkeypatch.setattr(claims, "RENEW_MS", 50)
    now_ms = team.clock.now_ms()
    with team.team.change() as (connection, _):
        claims.claim(connection, now_ms, "path:src", "t", 5_000)
        claims.claim(connection, now_ms, "path:docs", "other", 5_000)
        claims.claim(connection, now_ms - 10_000, "slot:test:1", "t", 5_000)
    run.run_command(team.team, "t", ["sleep", "0.4"])
    rows = dict(team.rows("SELECT task_id, lease_until_ms FROM task_claims"))
    assert rows == {
        "path:src": now_ms + claims.LEASE_MS,
        "path:docs": now_ms + 5_000,
        "slot:test:1": now_ms - 5_000,
    }


def test_signal_that_comes_before_the_command_has_started_is_passed_on(team, monkeypatch):
    team.to("WORKING")
    real = subprocess.Popen

    def popen(words, **options):
        os.kill(os.getpid(), signal.SIGTERM)
        return real(words, **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    pid = os.fork()  # the threads of this process would receive the signal
    if pid == 0:
        os._exit(run.run_command(team.open(), "t", ["sleep", "60"]))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 128 + signal.SIGTERM


class Running:
    """`agentlip worker run` as a process, whose command writes the pids of its descendants."""

    def __init__(self, team, tmp_path):
        team.to("WORKING")
        self.team, self.pids_file = team, tmp_path / "pids"
        script = (
            f"sleep 600 & echo $! >> {self.pids_file}\n"
            f"(sleep 600 & echo $! >> {self.pids_file}; wait) & echo $! >> {self.pids_file}\n"
            f"setsid sleep 600 & echo $! >> {self.pids_file}\n"
            f"echo $$ >> {self.pids_file}; trap 'exit 9' TERM USR1; while :; do sleep 0.05; done"
        )
        words = command("agentlip", "worker", "run", "--task", "t", "--", "sh", "-c", script)
        self.process = subprocess.Popen(words, cwd=team.repository, env=environment())
        self.pids = until(self._read, what="the command has started")

    def _read(self):
        pids = self.pids_file.read_text().split() if self.pids_file.exists() else []
        return list(map(int, pids)) if len(pids) == 5 else None

    def living(self):
        return [pid for pid in self.pids if is_running(pid)]

    def end(self, number):
        self.process.send_signal(number)
        return self.process.wait(30)


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.fixture
def running(team, tmp_path):
    started = Running(team, tmp_path)
    yield started
    for pid in started.living():
        os.kill(pid, signal.SIGKILL)
    started.process.kill()
    started.process.wait()


@pytest.mark.parametrize(
    ("number", "code"), [("SIGKILL", -9), ("SIGTERM", 9), ("SIGUSR1", 9), ("SIGHUP", 128 + 1)]
)
def test_nothing_of_the_command_is_left_when_run_ends(running, number, code):
    assert running.end(getattr(signal, number)) == code
    until(lambda: not running.living(), what="all descendants have ended")


def test_command_that_does_not_exist_is_refused(team):
    team.to("WORKING")
    with pytest.raises(Invalid, match="can't be started"):
        run.run_command(team.team, "t", ["no-such-program"])


def test_claims_and_the_end_are_written_to_a_file_that_was_replaced(team, monkeypatch):
    team.to("WORKING")
    monkeypatch.setattr(claims, "RENEW_MS", 50)
    script = f"rm {team.paths.database}*; sleep 0.3"
    run.run_command(team.team, "t", ["sh", "-c", script])
    with closing(connect(team.paths)) as connection:
        rows = connection.execute("SELECT type FROM messages").fetchall()
    assert rows == [("agent_stopped",)]


def test_command_keeps_the_terminal_and_gets_its_signal_once(team, tmp_path):
    team.to("WORKING")
    noted = tmp_path / "noted"
    noted.touch()
    script = (
        f"trap 'echo INT >> {noted}' INT; read line </dev/tty; echo $line >> {noted};"
        " while ! grep -q end <&0; do :; done"
    )
    words = command("agentlip", "worker", "run", "--task", "t", "--", "bash", "-c", script)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(team.repository)
        os.execve(words[0], words, environment())
    try:
        os.write(terminal, b"hello\n")
        until(lambda: "hello" in noted.read_text(), what="it reads from the terminal")
        os.write(terminal, b"\x03")
        until(lambda: "INT" in noted.read_text(), what="the terminal's signal has come")
        os.write(terminal, b"\x04end\n")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
    assert noted.read_text().split() == ["hello", "INT"]
