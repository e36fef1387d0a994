"""A shared store as small as one can be: a file of notices that any program writes."""

import sqlite3
import subprocess
import sys

from appliance.kernel.store_declaration import StoreDeclaration

DECLARED = StoreDeclaration(
    path=".board/notices.db", shared=True, opens="tests.support.shared_board:open_board"
)
SCHEMA = "CREATE TABLE IF NOT EXISTS notice (number INTEGER PRIMARY KEY, text TEXT NOT NULL)"
READ = "SELECT text FROM notice ORDER BY number"
PROGRAM = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.stdin:
    print(*(row[0] for row in connection.execute(statement)), flush=True)
"""


class OtherProgram:
    """A process that knows nothing of the appliance, with one connection to the file."""

    def __init__(self, path):
        path.parent.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.run("PRAGMA journal_mode = WAL")
        self.run(SCHEMA)

    def run(self, statement):
        self.process.stdin.write(f"{statement}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def write(self, text):
        self.run(f"INSERT INTO notice (text) VALUES ('{text}')")
        return self.run(READ)


def open_board(path, synchronous):
    path.parent.mkdir(mode=0o700, exist_ok=True)
    connection = sqlite3.connect(path, isolation_level=None, timeout=5)
    for statement in ("PRAGMA journal_mode = WAL", f"PRAGMA synchronous = {synchronous}", SCHEMA):
        connection.execute(statement).fetchall()
    return connection


def put_up(tx, text):
    tx.execute("INSERT INTO notice (text) VALUES (?)", (text,))


def notices(reader):
    return [text for (text,) in reader.execute(READ)]
