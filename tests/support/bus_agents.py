"""An agent for tests that are killed at any moment: claims, works, publishes, polls and acks.

    python -m tests.support.bus_agents ours|spec|http WORKSPACE AGENT LOG STOP
    python -m tests.support.bus_agents ours|spec|http WORKSPACE AGENT RUNS TASK…

It appends what it does to LOG before it does it, and ends when the file STOP exists and nothing
is left to handle. With tasks it claims and does each that is not done, and records that in RUNS.
"""

import http.client
import json
import os
import random
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from appliance.busfile import claims, messages, workers
from appliance.busfile.file import BusPaths, connect, transaction
from appliance.busfile.messages import NewMessage
from appliance.busfile.reviews import OwnReview
from appliance.workspace.datadir import DataDir
from tests.support import bus_spec_client, recorded_runs
from tests.support.servedhub import Answer, Client

LEASE_MS = 150
TASKS = ("red", "green", "blue")
WORKERS = ("one", "two")


class OurAgent:
    """The functions of `busfile`."""

    def __init__(self, workspace: Path, agent: str) -> None:
        self.agent = agent
        self.blobs = BusPaths(workspace).blobs
        self.connection = connect(BusPaths(workspace))
        self.fence = 0

    def claim(self, task: str) -> bool:
        try:
            with transaction(self.connection):
                made = claims.claim(
                    self.connection, bus_spec_client.now(), task, self.agent, LEASE_MS
                )
        except claims.ClaimHeld:
            return False
        self.fence = made.fence
        return True

    def renew(self, task: str) -> bool:
        try:
            with transaction(self.connection):
                now = bus_spec_client.now()
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
            messages.publish(self.connection, bus_spec_client.now(), message)

    def poll(self) -> list[tuple[int, Any]]:
        return [
            (row.seq, row.payload) for row in messages.poll(self.connection, self.blobs, self.agent)
        ]

    def ack(self, seq: int) -> None:
        with transaction(self.connection):
            messages.ack(self.connection, bus_spec_client.now(), self.agent, seq)

    def change_state(self, task: str) -> None:
        before = workers.require_worker(self.connection, task).state
        try:
            with transaction(self.connection):
                now, after = bus_spec_client.now(), next_state(before)
                workers.transition(self.connection, now, task, before, after, actor=self.agent)
        except (workers.StaleState, OwnReview):
            pass


class ServedAgent:
    """An appliance. A request is repeated until it is answered, perhaps by the next server."""

    def __init__(self, workspace: Path, agent: str) -> None:
        self.agent = agent
        self.datadir = DataDir(workspace)
        self.client: Client | None = None
        self.fence = 0

    def ask(self, method: str, path: str, **body: Any) -> Answer:
        while True:
            try:
                if self.client is None:
                    port = int((self.datadir.dir / "port").read_text())
                    self.client = Client(port, self.datadir.read_token())
                return self.client(method, f"/bus/v1/{path}", body or None)
            except (OSError, ValueError, http.client.HTTPException):
                self.client = None
                time.sleep(0.05)

    def claim(self, task: str) -> bool:
        lease = LEASE_MS / 1000
        answer = self.ask("POST", "claims", task=task, agent=self.agent, lease_seconds=lease)
        self.fence = answer.body.get("fence")
        return answer.status == 201

    def renew(self, task: str) -> bool:
        fields = {"task": task, "agent": self.agent, "fence": self.fence}
        answer = self.ask("POST", "claims/renew", **fields, lease_seconds=LEASE_MS / 1000)
        return answer.status == 200

    def release(self, task: str) -> None:
        self.ask("POST", "claims/release", task=task, agent=self.agent, fence=self.fence)

    def publish(self, payload: Any) -> None:
        fields = {"from_agent": self.agent, "type": "note", "payload": payload}
        answer = self.ask("POST", "messages", **fields, id=str(uuid.uuid4()))
        assert answer.status in (200, 201), answer

    def poll(self) -> list[tuple[int, Any]]:
        page = self.ask("GET", f"messages?agent={self.agent}").body
        return [(row["seq"], row["payload"]) for row in page["messages"]]

    def ack(self, seq: int) -> None:
        assert self.ask("POST", "acks", agent=self.agent, seq=seq).status == 200

    def change_state(self, task: str) -> None:
        before = self.ask("GET", f"workers/{task}").body["state"]
        change = {"from": before, "to": next_state(before), "actor": self.agent}
        assert self.ask("POST", f"workers/{task}/state", **change).status in (200, 409)


class SpecAgent:
    """The client written from the specification."""

    fence = None

    def __init__(self, workspace: Path, agent: str) -> None:
        self.agent = agent
        self.db = bus_spec_client.open_bus(BusPaths(workspace).database)

    def claim(self, task: str) -> bool:
        return bus_spec_client.claim(self.db, self.agent, task, LEASE_MS)

    def renew(self, task: str) -> bool:
        return bus_spec_client.renew(self.db, self.agent, task, LEASE_MS)

    def release(self, task: str) -> None:
        bus_spec_client.release(self.db, self.agent, task)

    def publish(self, payload: Any) -> None:
        bus_spec_client.publish(self.db, self.agent, "note", json.dumps(payload))

    def poll(self) -> list[tuple[int, Any]]:
        return [(seq, payload) for seq, _, payload in bus_spec_client.poll(self.db, self.agent)]

    def ack(self, seq: int) -> None:
        bus_spec_client.ack(self.db, self.agent, seq)


def next_state(before: workers.State) -> workers.State:
    """Not the last one, in which there would be nothing left to do."""
    return random.choice([after for after in workers.TRANSITIONS[before] if after != "COMPLETED"])


def work(agent: OurAgent | ServedAgent | SpecAgent, log: Path, stop: Path) -> None:
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
        time.sleep(random.uniform(0, 0.05))  # or the slowest would be too far behind
        agent.publish({"by": agent.agent, "at": time.time_ns()})
        if not isinstance(agent, SpecAgent):
            agent.change_state(random.choice(WORKERS))
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


def work_once(agent: OurAgent | ServedAgent | SpecAgent, file: Path, tasks: list[str]) -> None:
    while left := sorted(set(tasks) - recorded_runs.ended(file)):
        task = random.choice(left)
        if not agent.claim(task):
            time.sleep(0.01)
            continue
        if task not in recorded_runs.ended(file):  # it was done before we had the claim
            recorded_runs.work(file, task, random.uniform(0, 0.6 * LEASE_MS / 1000))
        agent.release(task)


if __name__ == "__main__":
    kind, folder, name, file, *more = sys.argv[1:]
    agent = {"ours": OurAgent, "spec": SpecAgent, "http": ServedAgent}[kind](Path(folder), name)
    if len(more) == 1:
        work(agent, Path(file), Path(more[0]))
    else:
        work_once(agent, Path(file), more)
