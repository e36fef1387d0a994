"""Runs an agent's program, and keeps heartbeat and claims until the program ends."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from appliance.busfile import claims, heartbeats, workers
from appliance.busfile.heartbeats import HeartbeatThread
from appliance.busfile.worker.operations import Team
from appliance.child import attended
from appliance.child.attended import EXIT_SIGNALLED, PASSED_ON
from appliance.kernel.errors import ApplianceError, Invalid

Child = subprocess.Popen[bytes]


def run_command(team: Team, task: str, words: Sequence[str]) -> int:
    """Return the command's exit code, 128 and the number for a signal. Raises Invalid."""
    team.worker(task)
    send = partial(heartbeats.write, team.paths, task)
    if shutil.which(words[0]) is None:
        raise Invalid(f"{words[0]} can't be started: there is no such program")
    with _signals() as children, HeartbeatThread(send, "working", task):
        watched, _kept = os.pipe()  # hangs up when this process ends, also by SIGKILL
        attended_words = [sys.executable, "-EPm", attended.__name__, str(watched), *words]
        children.append(subprocess.Popen(attended_words, pass_fds=[watched]))
        os.close(watched)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        code = _wait(team, task, children[0])
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
                team.warn(f"claims by {task} are not renewed: {error.message}")


def _renew_claims(team: Team, task: str) -> None:
    """Renew leases that still run; an expired one may be somebody else's by now."""
    query = "SELECT task_id FROM task_claims WHERE claimed_by = ? AND lease_until_ms > ?"
    with team.change() as (connection, now_ms):
        for (name,) in connection.execute(query, (task, now_ms)).fetchall():
            claims.renew(connection, now_ms, name, task)


@contextmanager
def _signals() -> Iterator[list[Child]]:
    """Pass this process's signals to the child in the list, which decides their meaning. Signals
    are blocked until there is a child."""
    children: list[Child] = []
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    before = {
        number: signal.signal(number, lambda number, _: children[0].send_signal(number))
        for number in PASSED_ON
    }
    try:
        yield children
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
