"""Claims tasks, paths and slots, for a time, with fencing tokens.

    free ──claim──▶ held ──release──▶ free
                     │ ▲ renew
          lease ends ▼ │ renew, if nobody else has claimed it
                  expired ──claim by another──▶ held

A claim is valid until `lease_until_ms`. A task's fence rises with each claim, also by other
programs, and outlives the claim, so a write with an older fence can be refused. A claim on
`path:GLOB` excludes claims whose paths overlap, and `slot:NAME:N` is one among N.
"""

import shlex
import sqlite3
from collections.abc import Callable
from typing import TypeVar

import msgspec

from appliance.busfile import globs
from appliance.busfile.file import BusPaths, changing, sleep
from appliance.busfile.messages import check_name
from appliance.kernel.clock import HOUR_MS, Clock
from appliance.kernel.errors import Conflict, Invalid, Lost

LEASE_MS = 60_000
RENEW_MS = 30_000
LEASE_MS_MAX = HOUR_MS
WAIT_POLL_SECONDS = 0.25
PATH, SLOT = "path:", "slot:"
SLOTS_MAX = 1000
T = TypeVar("T")
_CLAIM = """SELECT task_id, claimed_by, claimed_at_ms, lease_until_ms, coalesce(fence, 0)
    FROM task_claims LEFT JOIN x_fences USING (task_id) """


class ClaimHeld(Conflict):
    code = "BUS_CLAIM_HELD"
    default_message = "another agent has the claim"


class ClaimLost(Lost):
    code = "BUS_CLAIM_LOST"
    default_message = "the claim is no longer held"
    default_hint = "stop the work on the claimed task or path, then claim it again"


class BusClaim(msgspec.Struct, frozen=True):
    """A stored claim with its fence, maybe expired."""

    task_id: str
    claimed_by: str
    claimed_at_ms: int
    lease_until_ms: int
    fence: int

    def valid(self, now_ms: int) -> bool:
        return self.lease_until_ms > now_ms


def claim(
    connection: sqlite3.Connection,
    now_ms: int,
    task: str,
    agent: str,
    lease_ms: int = LEASE_MS,
    key: str | None = None,
) -> BusClaim:
    """Take the claim, even after another agent's expired one. Raises ClaimHeld for a valid claim.

    That includes the agent's own claim, which may be another process's: `renew` that claim. Only
    with that claim's `key` is this call a repetition, which returns the claim. The agent's claims
    on overlapping paths do not exclude this one.
    """
    _check(task, agent, lease_ms)
    query = _CLAIM + "JOIN x_claim_keys USING (task_id, fence) WHERE (task_id, claimed_by, key)"
    row = connection.execute(query + " = (?, ?, ?)", (task, agent, key)).fetchone()
    if row and (repeated := BusClaim(*row)).valid(now_ms):
        return repeated
    for present in _rivals(connection, task, agent):
        if present.valid(now_ms):
            raise _held_error(present, task, agent, now_ms)
    connection.execute("DELETE FROM task_claims WHERE task_id = ?", (task,))
    connection.execute(
        "INSERT INTO task_claims (task_id, claimed_by, claimed_at_ms, lease_until_ms)"
        " VALUES (?, ?, ?, ?)",
        (task, agent, now_ms, now_ms + lease_ms),
    )
    taken = require(connection, task, agent)
    if key is not None:
        query = "INSERT OR REPLACE INTO x_claim_keys (task_id, fence, key) VALUES (?, ?, ?)"
        connection.execute(query, (task, taken.fence, key))
    return taken


def claim_slot(
    connection: sqlite3.Connection,
    now_ms: int,
    name: str,
    slots: int,
    agent: str,
    lease_ms: int = LEASE_MS,
) -> BusClaim:
    """Take the first free slot in `slot:NAME:1` … `slot:NAME:slots`. Raises ClaimHeld."""
    if not 1 <= slots <= SLOTS_MAX:
        raise Invalid(f"slots: 1 to {SLOTS_MAX:,}")
    first: ClaimHeld | None = None
    for number in range(1, slots + 1):
        try:
            return claim(connection, now_ms, f"{SLOT}{name}:{number}", agent, lease_ms)
        except ClaimHeld as held:
            first = first or held
    raise first or ClaimHeld()


def renew(
    connection: sqlite3.Connection,
    now_ms: int,
    task: str,
    agent: str,
    fence: int | None = None,
    lease_ms: int = LEASE_MS,
) -> BusClaim:
    """Begin a new lease. An expired claim that nobody else has taken is renewed as well.

    Raises ClaimLost if another agent has claimed the task since, or with another fence.
    """
    _check(task, agent, lease_ms)
    own = require(connection, task, agent, fence)
    if task.startswith(PATH):  # meanwhile somebody may have claimed an overlapping path
        for rival in _rivals(connection, task, agent):
            if rival.task_id != task and rival.valid(now_ms) and not own.valid(now_ms):
                raise _lost_error(rival, task)
    connection.execute(
        "UPDATE task_claims SET lease_until_ms = ? WHERE task_id = ?", (now_ms + lease_ms, task)
    )
    return require(connection, task, agent)


def release(
    connection: sqlite3.Connection, task: str, agent: str, fence: int | None = None
) -> bool:
    """End the claim; return False if the task is not claimed. Raises ClaimLost if another agent
    has it."""
    if _read(connection, task) is None:
        return False
    require(connection, task, agent, fence)
    connection.execute("DELETE FROM task_claims WHERE task_id = ?", (task,))
    return True


def release_all(connection: sqlite3.Connection, task: str) -> None:
    """End the task's claim, whoever has it, and all claims by the task's own agent."""
    connection.execute("DELETE FROM task_claims WHERE task_id = ?1 OR claimed_by = ?1", (task,))


def require(
    connection: sqlite3.Connection,
    task: str,
    agent: str,
    fence: int | None = None,
    now_ms: int | None = None,
) -> BusClaim:
    """Return the agent's claim. Raises ClaimLost for another agent's claim, a wrong fence, or with
    `now_ms` an expired claim."""
    present = _read(connection, task)
    if (
        present is None
        or present.claimed_by != agent
        or fence not in (None, present.fence)
        or (now_ms is not None and not present.valid(now_ms))
    ):
        raise _lost_error(present, task)
    return present


def all_claims(connection: sqlite3.Connection) -> list[BusClaim]:
    """Return every claim, also those that have expired."""
    return [BusClaim(*row) for row in connection.execute(_CLAIM + "ORDER BY task_id")]


def path_claims(connection: sqlite3.Connection, now_ms: int) -> list[BusClaim]:
    """Return valid path claims; `task_id` has the glob behind `path:`."""
    return [present for present in _paths(connection) if present.valid(now_ms)]


def wait(
    paths: BusPaths,
    clock: Clock,
    seconds: float,
    attempt: Callable[[sqlite3.Connection, int], T],
    pause: Callable[[float], object] = sleep,
) -> T:
    """Call `attempt(connection, now_ms)`, each time in a new transaction, until ClaimHeld is not
    raised.

    Raises the last ClaimHeld after these seconds.
    """
    deadline = clock.monotonic() + seconds
    while True:
        try:
            with changing(paths) as connection:
                return attempt(connection, clock.now_ms())
        except ClaimHeld:
            left = deadline - clock.monotonic()
            if left <= 0:
                raise
            pause(min(left, WAIT_POLL_SECONDS))


def _check(task: str, agent: str, lease_ms: int) -> None:
    check_name("agent", agent)
    check_name("task", task)
    if task.startswith(PATH):
        globs.check_glob(task.removeprefix(PATH))
    if not 0 < lease_ms <= LEASE_MS_MAX:
        raise Invalid(f"lease_ms: 1 to {LEASE_MS_MAX:,}")


def _rivals(connection: sqlite3.Connection, task: str, agent: str) -> list[BusClaim]:
    """Return the claims that exclude the agent's claim on `task`: that task's, and other agents'
    with overlapping paths."""
    if not task.startswith(PATH):
        present = _read(connection, task)
        return [present] if present else []
    glob = task.removeprefix(PATH)
    return [
        rival
        for rival in _paths(connection)
        if rival.task_id == task
        or (rival.claimed_by != agent and globs.overlap(glob, rival.task_id.removeprefix(PATH)))
    ]


def _paths(connection: sqlite3.Connection) -> list[BusClaim]:
    query = _CLAIM + "WHERE task_id GLOB 'path:*' ORDER BY task_id"
    return [BusClaim(*row) for row in connection.execute(query)]


def _read(connection: sqlite3.Connection, task: str) -> BusClaim | None:
    row = connection.execute(_CLAIM + "WHERE task_id = ?", (task,)).fetchone()
    return BusClaim(*row) if row else None


def _held_error(present: BusClaim, task: str, agent: str, now_ms: int) -> ClaimHeld:
    age = max(0, now_ms - present.claimed_at_ms) // 1000
    left = -(-(present.lease_until_ms - now_ms) // 1000)
    rival = "" if present.task_id == task else f" as {present.task_id}"
    hint = (
        f"wait: --wait {max(left, 1)}; or ask for it: agentlip bus send release_request"
        f" --to {shlex.quote(present.claimed_by)} --task {shlex.quote(present.task_id)}"
    )
    if present.claimed_by == agent:
        hint = f"agentlip bus renew {shlex.quote(task)}, or release it first"
    return ClaimHeld(
        f"{present.claimed_by} has {task}{rival} for {age} s; its lease ends in {left} s",
        details=msgspec.to_builtins(present),
        hint=hint,
    )


def _lost_error(present: BusClaim | None, task: str) -> ClaimLost:
    if present is None:
        return ClaimLost(f"nobody has claimed {task}")
    return ClaimLost(
        f"{present.claimed_by} has {present.task_id}, with fence {present.fence}",
        details=msgspec.to_builtins(present),
    )
