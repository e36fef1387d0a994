"""Runs an agent's program and keeps its heartbeat and its claims for as long as it runs."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from appliance.busfile import claims, heartbeats, workers
from appliance.busfile.heartbeats import HeartbeatThread
from appliance.busfile.worker.operations import Team
from appliance.kernel.errors import ApplianceError, Invalid

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
EXIT_SIGNALLED = 128
Child = subprocess.Popen[bytes]


def run_command(team: Team, task: str, words: Sequence[str]) -> int:
    """The exit code of the command, 128 and the number for a signal. Raises Invalid."""
    team.worker(task)
    send = partial(heartbeats.write, team.paths, task)
    with HeartbeatThread(send, "working", task), _signals() as receive:
        try:
            child = subprocess.Popen(list(words))
        except OSError as error:
            raise Invalid(f"{words[0]} can't be started: {error.strerror}") from None
        receive(child)
        code = _wait(team, task, child)
    with team.change() as (connection, now_ms):
        workers.announce(connection, now_ms, "agent_stopped", task, {"code": code}, actor=task)
    return code if code >= 0 else EXIT_SIGNALLED - code


def _wait(team: Team, task: str, child: Child) -> int:
    while True:
        try:
            return child.wait(claims.RENEW_MS / 1000)
        except subprocess.TimeoutExpired:
            try:
                _renew_claims(team, task)
            except ApplianceError as error:  # the next round tries again, before the lease ends
                team.warn(f"claims of {task} are not renewed: {error.message}")


def _renew_claims(team: Team, task: str) -> None:
    """Renews leases that still run; an expired one may be somebody else's by now."""
    query = "SELECT task_id FROM task_claims WHERE claimed_by = ? AND lease_until_ms > ?"
    with team.change() as (connection, now_ms):
        for (name,) in connection.execute(query, (task, now_ms)).fetchall():
            claims.renew(connection, now_ms, name, task)


@contextmanager
def _signals() -> Iterator[Callable[[Child], None]]:
    """Signals to this process go to the child, which decides what they mean. Those that come before
    there is a child wait for it."""
    children: list[Child] = []
    early: list[int] = []

    def pass_on(number: int, frame: Any) -> None:
        del frame
        if not children:
            early.append(number)
        elif number != signal.SIGINT or not sys.stdin.isatty():  # a terminal sends it to both
            children[0].send_signal(number)

    def receive(child: Child) -> None:
        children.append(child)
        for number in early:
            child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    try:
        yield receive
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
