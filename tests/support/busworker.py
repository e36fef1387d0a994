"""An agent for tests that are killed at any moment: claims, works, publishes, polls and acks.

    python -m tests.support.busworker ours|spec WORKSPACE AGENT LOG STOP

It appends what it does to LOG before it does it, and ends when the file STOP exists and nothing
is left to handle.
"""

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from appliance.busfile import claims, messages
from appliance.busfile.file import BusPaths, connect, transaction
from appliance.busfile.messages import NewMessage
from tests.support import specbus

LEASE_MS = 150
TASKS = ("red", "green", "blue")


class OurAgent:
    """The functions of `busfile`."""

    def __init__(self, workspace: Path, agent: str) -> None:
        self.agent = agent
        self.connection = connect(BusPaths(workspace))
        self.fence = 0

    def claim(self, task: str) -> bool:
        try:
            with transaction(self.connection):
                made = claims.claim(self.connection, specbus.now(), task, self.agent, LEASE_MS)
        except claims.ClaimHeld:
            return False
        self.fence = made.fence
        return True

    def renew(self, task: str) -> bool:
        try:
            with transaction(self.connection):
                now = specbus.now()
                claims.renew(self.connection, now, task, self.agent, self.fence, LEASE_MS)
        except claims.ClaimLost:
            return False
        return True

    def release(self, task: str) -> None:
        try:
            with transaction(self.connection):
                claims.release(self.connection, task, self.agent, self.fence)
        except claims.ClaimLost:
            pass

    def publish(self, payload: Any) -> None:
        message = NewMessage(from_agent=self.agent, type="note", payload=payload)
        with transaction(self.connection):
            messages.publish(self.connection, specbus.now(), message)

    def poll(self) -> list[tuple[int, Any]]:
        return [(row.seq, row.payload) for row in messages.poll(self.connection, self.agent)]

    def ack(self, seq: int) -> None:
        with transaction(self.connection):
            messages.ack(self.connection, specbus.now(), self.agent, seq)


class SpecAgent:
    """The client written from the specification."""

    fence = None

    def __init__(self, workspace: Path, agent: str) -> None:
        self.agent = agent
        self.db = specbus.open_bus(BusPaths(workspace).database)

    def claim(self, task: str) -> bool:
        return specbus.claim(self.db, self.agent, task, LEASE_MS)

    def renew(self, task: str) -> bool:
        return specbus.renew(self.db, self.agent, task, LEASE_MS)

    def release(self, task: str) -> None:
        specbus.release(self.db, self.agent, task)

    def publish(self, payload: Any) -> None:
        specbus.publish(self.db, self.agent, "note", json.dumps(payload))

    def poll(self) -> list[tuple[int, Any]]:
        return [(seq, payload) for seq, _, payload in specbus.poll(self.db, self.agent)]

    def ack(self, seq: int) -> None:
        specbus.ack(self.db, self.agent, seq)


def work(agent: OurAgent | SpecAgent, log: Path, stop: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(*words: Any) -> None:
        os.write(descriptor, (json.dumps(words) + "\n").encode())

    while True:
        ending = stop.exists()
        batch = agent.poll()
        for seq, _ in batch:
            note("handled", seq)
            agent.ack(seq)
        if ending and not batch:
            return
        if ending:
            continue
        agent.publish({"by": agent.agent, "at": time.time_ns()})
        task = random.choice(TASKS)
        if not agent.claim(task):
            continue
        note("claimed", task, agent.fence)
        for _ in range(random.randrange(4)):
            time.sleep(random.uniform(0, 0.8 * LEASE_MS / 1000))
            if not agent.renew(task):
                break
        else:
            note("releases", task)
            agent.release(task)


if __name__ == "__main__":
    kind, folder, name, log_file, stop_file = sys.argv[1:]
    make = OurAgent if kind == "ours" else SpecAgent
    work(make(Path(folder), name), Path(log_file), Path(stop_file))
