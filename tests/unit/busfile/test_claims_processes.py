"""Two implementations on one file, in eight processes that are killed and come back."""

import json
import random
import subprocess
import sys
import time

import pytest

from appliance.busfile.file import BusPaths, connect
from tests.contract.test_walls import ROOT
from tests.support import specbus
from tests.support.bus import BusFixture

pytestmark = pytest.mark.slow

SECONDS, AGENTS = 6.0, 8
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
    """Eight agents, of two kinds, each with its log file."""

    def __init__(self, folder):
        self.folder = folder
        self.stop = folder / "stop"
        self.names = [("ours", "spec")[number % 2] + str(number) for number in range(AGENTS)]
        self.processes = {name: self.start(name) for name in self.names}

    def start(self, name):
        words = [name[:4], self.folder, name, self.log(name), self.stop]
        command = [sys.executable, "-m", "tests.support.busworker", *map(str, words)]
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
    team = Team(folder)
    deadline = time.monotonic() + SECONDS
    crashes = 0
    while time.monotonic() < deadline:
        time.sleep(0.2)
        name = random.choice(team.names)
        if team.log(name).exists():
            team.crash(name)
            crashes += 1
    team.finish()
    assert crashes > 5
    team.connection = connection
    return team


def test_no_claim_was_taken_while_another_was_valid(team):
    """In the order of the commits: an agent lost its claim only by release or end of its lease."""
    releasing = dict.fromkeys(team.names, 0)
    present = {}
    lost_early = dict.fromkeys(team.names, 0)
    rows = team.connection.execute("SELECT kind, task, agent, at, until FROM x_log ORDER BY n")
    ended = {}
    for kind, task, agent, at, until in rows:
        if kind == "claim":
            assert task not in present, "two claims of a task"
            before = ended.pop(task, None)
            if before and before[1] > at:
                lost_early[before[0]] += 1  # only if it was released
            present[task] = (agent, until)
        elif kind == "renew":
            assert present[task][0] == agent
            present[task] = (agent, until)
        else:
            ended[task] = present.pop(task)
    for name in team.names:
        releasing[name] = sum(words[0] == "releases" for words in team.notes(name))
        assert lost_early[name] <= releasing[name]
    assert sum(lost_early.values()) > 0


def test_fences_only_rise_whichever_program_claims(team):
    counted = dict(
        team.connection.execute("SELECT task, count(*) FROM x_log WHERE kind = 'claim' GROUP BY 1")
    )
    assert dict(team.connection.execute("SELECT * FROM x_fences")) == counted
    fences = [
        (words[1], words[2])
        for name in team.names
        if name.startswith("ours")
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


def test_either_program_opens_and_reads_the_others_file(tmp_path):
    bus = BusFixture(tmp_path)
    db = specbus.open_bus(bus.paths.database)
    bus.send(payload={"a": 1}, to_agent="spec")
    specbus.publish(db, "spec", "their_type", "[1]")
    assert [row[2] for row in specbus.poll(db, "spec")] == ['{"a":1}', "[1]"]
    assert [row.payload for row in bus.poll("ours")] == [[1]]
    specbus.ack(db, "spec", 2)
    assert specbus.poll(db, "spec") == []
