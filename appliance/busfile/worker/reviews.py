"""The review gate: an external program, if one is set, and how long an agent waits for reviews.

    git config agentlip.reviewGate PROGRAM

The program is called as `PROGRAM enable|approve|reject|remove TASK [COMMENT]` in the workspace. A
missing program causes a warning; if `approve` or `reject` fails, the state stays unchanged.
"""

import shlex
import sqlite3
import subprocess
from typing import Literal

from appliance.busfile.reviews import latest_review
from appliance.busfile.worker.operations import Team
from appliance.kernel.errors import Conflict

SETTING = "agentlip.reviewGate"
GATE_SECONDS_MAX = 60.0
STOPS_MAX = 3
"""How often one review keeps an agent from ending its turn; each time costs a turn of the model."""

GateVerb = Literal["enable", "approve", "reject", "remove"]


class GateRefused(Conflict):
    code = "GATE_REFUSED"
    default_message = "the review gate refused, so the state is unchanged"
    default_hint = f"run the program that 'git config {SETTING}' names by hand"


def count_stop(connection: sqlite3.Connection, task: str) -> int:
    """Return how often the agent was kept from ending a turn, including now; 0 without a review."""
    latest = latest_review(connection, task)
    if latest is None:
        return 0
    connection.execute("UPDATE x_reviews SET stops = stops + 1 WHERE id = ?", (latest.id,))
    return latest.stops + 1


def call_gate(team: Team, verb: GateVerb, task: str, comment: str | None = None) -> None:
    """Call the external program, if one is set. Raises GateRefused for its failures."""
    setting = team.git.attempt("config", "--get", SETTING).output.strip()
    if not setting:
        return
    words = [*shlex.split(setting), verb, task, *([comment] if comment else [])]
    try:
        done = subprocess.run(
            words, cwd=team.paths.workspace, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=GATE_SECONDS_MAX, check=False,
        )  # fmt: skip
    except (FileNotFoundError, PermissionError):
        team.warn(f"the review gate {words[0]} does not exist; git config --unset {SETTING}")
        return
    except subprocess.TimeoutExpired:
        raise GateRefused(f"{words[0]} {verb} took longer than {GATE_SECONDS_MAX:.0f} s") from None
    if done.returncode:
        text = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-500:]
        raise GateRefused(f"{words[0]} {verb}: {text or f'exit code {done.returncode}'}")


def remove_gate(team: Team, task: str) -> None:
    """Have the program remove its files. A failure does not stop the task's end."""
    try:
        call_gate(team, "remove", task)
    except GateRefused as error:
        team.warn(error.message)
