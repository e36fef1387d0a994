"""Figures of sleeping agents: `python -m tests.bench.agents.suite [SECONDS [AGENTS]]`. Prints JSON.

All agents sleep for a minute. Then 20 messages a second are posted, one of which wakes a sleeping
agent. `wake_ms`: from the message's commit to the start of the turn's command. `cores`: the
appliance's CPU time. The agents' own loops run in one process beside it, as `agentlip agent run`
runs each of them.
"""

import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from appliance.hub.agents.running import TIMEOUT_SECONDS, Waking
from appliance.hub.agents.turn_runner import Limits, TurnRunner
from appliance.kernel.clock import SystemClock
from appliance.sdk.http import PATIENT, HubClient
from appliance.sdk.target import HubTarget
from tests.bench import machine
from tests.bench.jobs.suite import cpu_seconds
from tests.support.servedhub import ServedHub
from tests.support.until import until

IDLE_SECONDS, SECONDS, AGENTS = 60, 600, 200
MESSAGES_A_SECOND = 20
COMMAND = 'date +%s.%N > "$0/$AGENTLIP_AGENT-$AGENTLIP_TURN.part"; cat "$AGENTLIP_ENTRIES" >> '
COMMAND += '"$0/$AGENTLIP_AGENT-$AGENTLIP_TURN.part"; mv "$0/$AGENTLIP_AGENT-$AGENTLIP_TURN".*'
COMMAND += ' "$0/$AGENTLIP_AGENT-$AGENTLIP_TURN"'


def main() -> None:
    seconds, count = [*map(int, sys.argv[1:]), *(SECONDS, AGENTS)[len(sys.argv) - 1 :]]
    with tempfile.TemporaryDirectory() as folder:
        hub = ServedHub(Path(folder) / "w", "--no-limits")
        turns = Path(folder) / "turns"
        turns.mkdir()
        with hub.running():
            print(json.dumps(measure(hub, turns, seconds, count)))


def measure(hub: ServedHub, turns: Path, seconds: int, count: int) -> dict[str, float]:
    _, topic = hub.channel_with_topic("soak")
    agents = [sleeper(hub, f"agent{number}", turns) for number in range(count)]
    until(lambda: asleep(hub) == count, 120, "all sleep")
    idle = share_of_core(hub, min(seconds, IDLE_SECONDS), lambda: time.sleep(0.05))
    chosen, posted = random.Random(1), [0]

    def post() -> None:
        body = {"topic_id": topic, "sender": "bench", "content_raw": "x" * 200}
        if posted[0] % MESSAGES_A_SECOND == 0:
            body["to"] = [f"agent{chosen.randrange(count)}"]
        assert hub.http.post("/api/v1/messages", body).status == 201
        posted[0] += 1

    busy = share_of_core(hub, seconds, post)
    wakes = -(-posted[0] // MESSAGES_A_SECOND)
    until(lambda: sum(map(entries_in, turns.glob("*"))) >= wakes, 60, "every entry is handed over")
    late = sorted(ms for turn in turns.iterdir() for ms in wake_ms(turn))
    assert len(late) == wakes, "an entry was handed over twice"
    for agent in agents:
        agent.stop.set()
    memory = machine.memory_mb(hub.pid)
    return {
        "agents": count, "messages": posted[0], "wakes": wakes, "wake_ms_p50": late[wakes // 2],
        "wake_ms_p99": late[wakes * 99 // 100], "wake_ms_max": late[-1], "idle_cores": idle,
        "busy_cores": busy, "memory_mb": memory,
    }  # fmt: skip


def sleeper(hub: ServedHub, name: str, turns: Path) -> Waking:
    def client() -> HubClient:
        locate = HubTarget(hub.workspace).locate
        return HubClient(locate, PATIENT, timeout_seconds=TIMEOUT_SECONDS)

    command = ["sh", "-c", COMMAND, str(turns)]
    limits = Limits(10_000, acks=True)
    runner = TurnRunner(client(), name, command, limits, SystemClock(), lambda _: None)
    agent = Waking(client(), runner)
    threading.Thread(target=agent.run, daemon=True).start()
    return agent


def asleep(hub: ServedHub) -> int:
    after, count = "", 0
    while True:
        page = hub.http.get(f"/api/v1/agents?limit=100&after={after}").body
        count += sum(agent["state"] == "asleep" for agent in page["agents"])
        if not page.get("next"):
            return count
        after = page["next"]


def share_of_core(hub: ServedHub, seconds: int, act: Callable[[], object]) -> float:
    """Call `act` 20 times a second, and return the appliance's share of a core meanwhile."""
    before, began = sum(cpu_seconds(hub.pid)), time.monotonic()
    for number in range(seconds * MESSAGES_A_SECOND):
        act()
        time.sleep(max(0.0, began + (number + 1) / MESSAGES_A_SECOND - time.monotonic()))
    return (sum(cpu_seconds(hub.pid)) - before) / (time.monotonic() - began)


def entries_in(turn: Path) -> int:
    return 0 if turn.suffix else len(read(turn)[1])


def read(turn: Path) -> tuple[float, list[dict[str, Any]]]:
    began, _, work = turn.read_text().partition("\n")
    return float(began), json.loads(work)["entries"]


def wake_ms(turn: Path) -> list[float]:
    began, entries = read(turn)
    commits = [datetime.fromisoformat(each["stored_at"]).timestamp() for each in entries]
    return [1000 * (began - commit) for commit in commits]


if __name__ == "__main__":
    main()
