"""Checks for the machine's clock: not behind stored times, and not set lately."""

import sqlite3
from collections.abc import Iterator
from datetime import datetime

from appliance.checks.check import CLOCK_BEHIND_WARNING_SECONDS, Check, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.kernel import meta
from appliance.kernel.clock import DAY_MS, iso, utc
from appliance.kernel.steady_clock import CLOCK_KEY, ClockNote, jump_since_ms
from appliance.kernel.store_declaration import DECLARATIONS

_SET = "timedatectl; date -u"
CLOCK_JUMP_WARNING_SECONDS = 3600.0  # clock set by more than this: warning


def _clock(context: Context) -> Iterator[Finding]:
    now_ms = context.clock.now_ms()
    newest_of = {
        store: declared.newest for store, declared in DECLARATIONS.items() if declared.newest
    }
    ahead = [
        (newest, store)
        for store, connection in context.opened(*newest_of)
        if (newest := _newest_ms(connection, newest_of[store])) is not None
        and newest - now_ms > CLOCK_BEHIND_WARNING_SECONDS * 1000
    ]
    if ahead:
        newest, store = max(ahead)
        minutes = (newest - now_ms) / 60_000
        yield PAST.finding(
            "clock",
            f"this machine's clock ({iso(now_ms)}) is {minutes:.0f} minutes behind the newest time"
            f" in the store {store} ({iso(newest)}); or the clock was ahead at that write",
        )
    yield from _jumped(context)


def _newest_ms(connection: sqlite3.Connection, sql: str) -> int | None:
    try:
        row = connection.execute(sql).fetchone()
    except sqlite3.OperationalError:  # a missing table or column is reported by another check
        return None
    if row is None or not isinstance(row[0], str):
        return None if row is None else row[0]
    try:
        return int(datetime.fromisoformat(utc(row[0])).timestamp() * 1000)
    except ValueError:
        return None


def _jumped(context: Context) -> Iterator[Finding]:
    """Find the jump that a store noted last, and one that no running appliance has noted yet."""
    now_ms = context.clock.now_ms()
    jumps: dict[str, int] = {}
    for _, connection in context.opened():
        note = meta.decode(meta.read(connection, CLOCK_KEY), ClockNote)
        if note is None:
            continue
        if note.jumped_at is not None and iso(now_ms - DAY_MS) < note.jumped_at:
            jumps[note.jumped_at] = note.jump_ms
        since = jump_since_ms(note, context.clock)
        if since:
            jumps[iso(now_ms)] = since
    for jumped_at, jump_ms in sorted(jumps.items())[-1:]:
        far = abs(jump_ms) > CLOCK_JUMP_WARNING_SECONDS * 1000
        yield JUMPED.finding(
            "clock",
            f"the clock was set by {jump_ms / 1000:+.0f} s, noticed at {jumped_at}",
            severity=Severity.WARNING if far else Severity.INFO,
        )


PAST = Problem("past", hint=_SET)
JUMPED = Problem("jumped", hint=_SET)
CHECKS = (
    Check(
        name="host.clock",
        inspects="the clock is not behind stored times, and was not set within a day",
        find=_clock,
        problems=(PAST, JUMPED),
    ),
)  # fmt: skip
