"""A broker that is killed at any moment: its log has a row exactly for each change of its state."""

import sqlite3
import subprocess
import sys
from contextlib import closing

PROGRAM = """
import sys
from pathlib import Path
from tests.support.broker import BrokerFixture

broker = BrokerFixture(Path(sys.argv[1]))
box = broker.connect("bert")
for number in range(int(sys.argv[2]), 1_000_000):
    broker.send(f"m{number}")
    if number % 3 == 0:
        box.receive()
    print(number, flush=True)
"""
QUEUED = "SELECT broker_message_id, recipient FROM delivery_queue ORDER BY 1, 2"
OPEN = """
SELECT h.broker_message_id, s.subscriber FROM message_history AS h
JOIN subscription AS s ON s.kind = 'topic' WHERE NOT EXISTS (SELECT 1 FROM log
  WHERE name = 'delivery.acked' AND message_id = h.broker_message_id AND recipient = s.subscriber)
ORDER BY 1, 2"""
SENT = """
SELECT v.broker_message_id, v.attempts FROM delivery_queue AS v WHERE v.attempts <> (
  SELECT count(*) FROM log
  WHERE name = 'delivery.sent' AND message_id = v.broker_message_id AND recipient = v.recipient)"""


def test_log_agrees_with_the_state_after_each_kill(tmp_path):
    sends = 50
    folder = tmp_path / "broker"
    for first in (0, 1_000):
        command = [sys.executable, "-c", PROGRAM, str(folder), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            for _ in range(sends):
                assert process.stdout.readline()
            process.kill()
    with closing(sqlite3.connect(folder / "broker.sqlite3")) as file:
        accepted = file.execute("SELECT message_id FROM log WHERE name = 'message.accepted'")
        history = file.execute("SELECT broker_message_id FROM message_history")
        assert sorted(accepted) == sorted(history)
        assert file.execute("SELECT count(*) FROM message_history").fetchone()[0] >= 2 * sends
        assert file.execute(QUEUED).fetchall() == file.execute(OPEN).fetchall()
        assert file.execute(SENT).fetchall() == []
