"""Two implementations on one file, and a served appliance beside them, in eight processes that are
killed and come back."""

import json
import random
import subprocess
import sys
import time

import pytest

from appliance.busfile import workers
from appliance.busfile.file import BusPaths, connect, transaction
from tests.contract.test_walls import ROOT
from tests.support.bus_agents import WORKERS
from tests.support.servedhub import serve
from tests.support.until import until

pytestmark = pytest.mark.slow

CRASHES, AGENTS, KINDS = 20, 8, ("http", "http", "ours", "spec")
LOG = """
CREATE TABLE x_log (n INTEGER PRIMARY KEY, kind TEXT, task TEXT, agent TEXT, at INT, until INT);
CREATE TRIGGER x_log_insert AFTER INSERT ON task_claims BEGIN INSERT INTO x_log VALUES
    (NULL, 'claim', new.task_id, new.claimed_by, new.claimed_at_ms, new.lease_until_ms); END;
CREATE TRIGGER x_log_update AFTER UPDATE ON task_claims BEGIN INSERT INTO x_log VALUES
    (NULL, 'renew', new.task_id, new.claimed_by, 0, new.lease_until_ms); END;
CREATE TRIGGER x_log_delete AFTER DELETE ON task_claims BEGIN INSERT INTO x_log VALUES
    (NULL, 'end', old.task_id, old.claimed_by, 0, old.lease_until_ms); END;
"""


class Team:
    """Eight agents, of three kinds, each with its log file."""

    def __init__(self, folder):
        self.folder = folder
        self.stop = folder / "stop"
        self.names = [KINDS[number % len(KINDS)] + str(number) for number in range(AGENTS)]
        self.processes = {name: self.start(name) for name in self.names}

    def start(self, name):
        words = [name[:4], self.folder, name, self.log(name), self.stop]
        command = [sys.executable, "-m", "tests.support.bus_agents", *map(str, words)]
        return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)

    def log(self, name):
        return self.folder / f"{name}.log"

    def notes(self, name):
        lines = self.log(name).read_text().splitlines()
        return [json.loads(line) for line in lines]

    def crash(self, name):
        process = self.processes[name]
        process.kill()
        assert process.wait() == -9, process.stderr.read().decode()
        self.processes[name] = self.start(name)

    def finish(self):
        """Twice: an agent that ends first misses what the others publish at their end."""
        self.stop.touch()
        for _ in range(2):
            for process in self.processes.values():
                assert process.wait(120) == 0, process.stderr.read().decode()
            self.processes = {name: self.start(name) for name in self.names}
        for process in self.processes.values():
            assert process.wait(120) == 0


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    folder = tmp_path_factory.mktemp("team")
    connection = connect(BusPaths(folder))
    connection.executescript(LOG)
    for task in WORKERS:
        with transaction(connection):
            workers.create(connection, 1, task, branch=None, actor="test")
    with serve(folder) as hub:
        team = Team(folder)
        crash_at_random(team, hub)
        team.finish()
    team.connection = connection
    return team


def crash_at_random(team, hub):
    for number in range(CRASHES):
        time.sleep(0.2)
        name = random.choice(team.names)
        until(team.log(name).exists, 60, "it has begun")
        team.crash(name)
        if number % 10 == 5:
            hub.kill()
            hub.start()


def test_no_claim_was_taken_while_another_was_valid(team):
    """In the order of the commits: an agent lost its claim only by release or end of its lease."""
    present = {}
    lost_early = dict.fromkeys(team.names, 0)
    rows = team.connection.execute("SELECT kind, task, agent, at, until FROM x_log ORDER BY n")
    ended = {}
    for kind, task, agent, at, lease_until in rows:
        if kind == "claim":
            assert task not in present, "two claims of a task"
            before = ended.pop(task, None)
            if before and before[1] > at:
                lost_early[before[0]] += 1  # only if it was released
            present[task] = (agent, lease_until)
        elif kind == "renew":
            assert present[task][0] == agent
            present[task] = (agent, lease_until)
        else:
            ended[task] = present.pop(task)
    for name in team.names:
        assert lost_early[name] <= sum(words[0] == "releases" for words in team.notes(name))
    assert sum(lost_early.values()) > 0


def test_fences_only_rise_whichever_program_claims(team):
    counted = dict(
        team.connection.execute("SELECT task, count(*) FROM x_log WHERE kind = 'claim' GROUP BY 1")
    )
    assert dict(team.connection.execute("SELECT * FROM x_fences")) == counted
    fences = [
        (words[1], words[2])
        for name in team.names
        if not name.startswith("spec")
        for words in team.notes(name)
        if words[0] == "claimed"
    ]
    assert len(fences) == len(set(fences)) > 0


def test_every_message_was_handled_at_least_once_by_every_agent(team):
    published = {seq for (seq,) in team.connection.execute("SELECT seq FROM messages")}
    assert len(published) > 50
    for name in team.names:
        handled = [words[1] for words in team.notes(name) if words[0] == "handled"]
        assert set(handled) == published
        firsts = list(dict.fromkeys(handled))
        assert firsts == sorted(firsts)


def test_every_message_was_published_once(team):
    """Also if the reply was lost: the request was repeated with the same id."""
    rows = team.connection.execute("SELECT payload FROM messages WHERE type = 'note'").fetchall()
    assert len(rows) == len(set(rows))


def test_every_history_of_states_is_a_path_in_the_table(team):
    for task in WORKERS:
        rows = team.connection.execute(
            "SELECT payload FROM messages WHERE type = 'state_change' AND correlation_id = ?"
            " ORDER BY seq",
            (task,),
        ).fetchall()
        assert len(rows) > 10
        state = None
        for (payload,) in rows:
            change = json.loads(payload)
            assert change["from"] == state
            assert change["to"] in workers.TRANSITIONS[state]
            state = change["to"]
        assert workers.require_worker(team.connection, task).state == state
