"""Counts what a name with a ceiling uses on a UTC day, inside transactions.

At 80 % of a limit the operator gets a warning, and at 100 % the name is paused.
"""

from typing import Any

from appliance.hub import events, pausing
from appliance.hub import writes as hub_writes
from appliance.hub.bound_records import Ceiling, CeilingWarned, DayUsage
from appliance.hub.events import encode
from appliance.kernel.batch import Tx
from appliance.kernel.idempotency import Reply
from appliance.kernel.meta import Executor
from appliance.kernel.reader import Reader

CHANNEL = "bounds"  # the scope of events about names, which have no channel
CEILINGS_MAX = 10_000
WARNED_SHARE = 0.8
DAYS_KEPT = 35
UNITS = ("messages", "turns", "claims", "tokens", "cost")
_CEILINGS = (
    "SELECT c.name, c.messages, c.turns, c.claims, c.tokens, c.cost, c.set_by, c.set_at,"
    " u.messages, u.turns, u.claims, u.tokens, u.cost, u.granted, u.warned FROM x_ceilings AS c"
    " LEFT JOIN x_usage AS u ON u.name = c.name AND u.day = ?"
)
_CEILING = f"{_CEILINGS} WHERE c.name = ?"
_PAGE = f"{_CEILINGS} WHERE c.name > ? ORDER BY c.name LIMIT ?"
_WARNED = f"{_CEILINGS} WHERE u.warned = 1 ORDER BY c.name LIMIT ?"
_COUNT = (
    "INSERT INTO x_usage (name, day, messages, turns, claims, tokens, cost)"
    " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name, day) DO UPDATE SET"
    " messages = messages + excluded.messages, turns = turns + excluded.turns,"
    " claims = claims + excluded.claims, tokens = tokens + excluded.tokens,"
    " cost = cost + excluded.cost"
)
_PRUNE = "DELETE FROM x_usage WHERE name = ? AND day < strftime('%Y-%m-%d', ?, ?)"
_GRANT = "UPDATE x_usage SET granted = granted + 1 WHERE name = ? AND day = ?"
_NOTE_WARNED = "UPDATE x_usage SET warned = 1 WHERE name = ? AND day = ?"


def names(reader: Reader) -> frozenset[str]:
    """Return the names with a ceiling."""
    rows = reader.rows("SELECT name FROM x_ceilings", limit=CEILINGS_MAX)
    return frozenset(name for (name,) in rows)


def find(reader: Executor, name: str, day: str) -> Ceiling | None:
    row = reader.execute(_CEILING, (day, name)).fetchone()
    return None if row is None else _ceiling(row, day)


def page(reader: Reader, day: str, after: str, limit: int) -> list[Ceiling]:
    rows = reader.rows(_PAGE, (day, after, limit), limit=limit)
    return [_ceiling(row, day) for row in rows]


def warned(reader: Reader, day: str, limit: int) -> list[Ceiling]:
    """Return the ceilings that are used by 80 %."""
    return [_ceiling(row, day) for row in reader.rows(_WARNED, (day, limit), limit=limit)]


def post_counted(tx: Tx, name: str, *message: Any) -> Reply:
    """Post a message and count it. Raises Paused."""
    pausing.refuse_paused(tx, "principal", name)
    reply = hub_writes.create_message(tx, *message)
    count(tx, name, messages=1)
    return reply


def count_claim(tx: Tx, name: str) -> bool:
    """Count a claim; return whether a limit is reached."""
    return count(tx, name, claims=1)


def count(tx: Tx, name: str, **used: float) -> bool:
    """Add to a name's day; return whether a limit is reached. Without a ceiling, count nothing."""
    day = day_of(tx)
    if find(tx, name, day) is None:
        return False
    tx.execute(_COUNT, (name, day, *[used.get(unit, 0) for unit in UNITS]))
    tx.execute(_PRUNE, (name, tx.now, f"-{DAYS_KEPT} days"))
    ceiling = require(tx, name)
    unit, share = _most_used(ceiling)
    if share >= WARNED_SHARE and not ceiling.usage.warned:
        _warn(tx, name)
    if share >= 1 and pausing.find_current(tx, "principal", name) is None:
        reason = f"the ceiling for a day is reached: {getattr(ceiling.usage, unit):g} {unit}"
        scope = (channel_id(tx), None)
        pausing.begin(
            tx, "principal", name, "ceiling", pausing.APPLIANCE, reason, None, scope
        )  # fmt: skip
    return share >= 1


def grant(tx: Tx, name: str) -> None:
    """Grant a name the ceiling for today once more."""
    tx.execute(_GRANT, (name, day_of(tx)))


def require(tx: Tx, name: str) -> Ceiling:
    ceiling = find(tx, name, day_of(tx))
    assert ceiling is not None
    return ceiling


def channel_id(tx: Tx) -> str:
    """Return the channel of events about names, which is created if needed."""
    return hub_writes.find_or_create_channel(tx, CHANNEL, None)


def day_of(tx: Tx) -> str:
    """Return the UTC day."""
    return tx.now[:10]


def _most_used(ceiling: Ceiling) -> tuple[str, float]:
    """Return the unit nearest to its limit, and the used share."""
    times = 1 + ceiling.usage.granted
    shares = [
        (getattr(ceiling.usage, unit) / (limit * times), unit)
        for unit in UNITS
        if (limit := getattr(ceiling, unit)) is not None
    ]
    share, unit = max(shares)
    return unit, share


def _warn(tx: Tx, name: str) -> None:
    tx.execute(_NOTE_WARNED, (name, day_of(tx)))
    events.append(
        tx, "ceiling.warned", ("ceiling", name), encode(CeilingWarned(require(tx, name))),
        channel_id=channel_id(tx),
    )  # fmt: skip


def _ceiling(row: Any, day: str) -> Ceiling:
    name, messages, turns, claims, tokens, cost, set_by, set_at, *used = row
    usage = DayUsage(day)
    if used[0] is not None:
        used_messages, used_turns, used_claims, used_tokens, used_cost, granted, was_warned = used
        usage = DayUsage(
            day, used_messages, used_turns, used_claims, used_tokens, used_cost, granted,
            bool(was_warned),
        )  # fmt: skip
    return Ceiling(name, messages, turns, claims, tokens, cost, set_by, set_at, usage)
