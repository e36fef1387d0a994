"""An agent that `agentlip agent run` wakes, whose turns note in a file what they got."""

import json
import signal
import subprocess
import sys

from tests.support.commands import command, environment
from tests.support.servedhub import ServedHub
from tests.support.until import until

# Appends what it was given to a file; acknowledges as its arguments say.
AGENT = """
import json, os, subprocess, sys, time, urllib.request
work = json.load(sys.stdin)
assert work == json.load(open(os.environ["AGENTLIP_ENTRIES"]))
with open(sys.argv[1], "a") as file:
    file.write(json.dumps([work["turn"], work["reminder"],
                           [entry["message"]["content_raw"] for entry in work["entries"]]
                           + [row["envelope"]["id"] for row in work["envelopes"]]
                           + [row["type"] for row in work["messages"]]]) + "\\n")
time.sleep(float(sys.argv[3]))
print("handled by", work["agent"])
if sys.argv[2] == "fail":
    sys.exit(7)
if sys.argv[2] in ("ack", "decline") and work["entries"]:
    ids = [entry["id"] for entry in work["entries"]]
    body = {"ids": ids, "name": work["agent"]}
    if sys.argv[2] == "decline":
        body = {"id": ids[0], "reason": "no", "name": work["agent"]}
    body = json.dumps(body).encode()
    head = {"Authorization": "Bearer " + os.environ["TOKEN"], "Content-Type": "application/json"}
    verb = {"ack": "acknowledge", "decline": "decline"}[sys.argv[2]]
    url = os.environ["HUB"] + "/api/v1/inbox/" + verb
    for attempt in range(200):
        try:
            urllib.request.urlopen(urllib.request.Request(url, body, head)).read()
            break
        except OSError:
            time.sleep(0.1)
"""


class Agent:
    """One `agent run`, whose turns note in a file what they got."""

    def __init__(self, hub, folder, how, *flags, name="ada", seconds=0, token=None):
        self.file, self.script = folder / "turns", folder / "agent.py"
        self.script.write_text(AGENT)
        self.hub, self.name, self.token = hub, name, token
        turn = [sys.executable, self.script, self.file, how, str(seconds)]
        words = [*command("agentlip"), "agent", "run", name, *flags, "--", *map(str, turn)]
        self.words = words
        self.start()

    def start(self):
        more = {"HUB": f"http://127.0.0.1:{self.hub.port}", "TOKEN": self.hub.token}
        more |= {"AGENTLIP_TOKEN": self.token} if self.token else {}
        self.process = subprocess.Popen(
            self.words, cwd=self.hub.workspace, env=environment(**more), stderr=subprocess.PIPE
        )

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.communicate(timeout=30)[1].decode()

    def turns(self):
        if not self.file.exists():
            return []
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    def wait_for(self, count):
        until(lambda: len(self.turns()) >= count, 30, f"{count} turns")
        return self.turns()


def send(hub, topic_id, text, name="ada"):
    body = {"topic_id": topic_id, "sender": "boss", "content_raw": text, "to": [name]}
    return ServedHub.made(hub.http.post("/api/v1/messages", body))


def states(hub, name="ada"):
    sql = "SELECT state FROM x_entries WHERE name = ? ORDER BY id"
    return [state for (state,) in hub.rows(sql, name)]


def agent_row(hub, name="ada"):
    rows = hub.http.get("/api/v1/agents").body["agents"]
    return next((row for row in rows if row["name"] == name), None)


def is_asleep(hub, name="ada"):
    row = agent_row(hub, name)
    return row is not None and row["state"] == "asleep"
