"""Keeps the contact requests that wait for a person, as the relay last listed them.

Names, mail addresses and greetings are texts by strangers: bounded here, and shown as text.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from appliance.kernel.clock import DAY_MS
from appliance.network.keys import AgentPublicKey, BadKey
from appliance.network.names import is_agent_name
from appliance.sdk.network.state import AgentState

REQUESTS_MAX = 200  # a relay keeps at most 100 for each agent
BLOCKED_MAX = 10_000
GREETING_CHARACTERS_MAX = 500
EMAIL_CHARACTERS_MAX = 254
EXPIRY_MS = 30 * DAY_MS  # then no question is about the request any more
_COLUMNS = "agent, public_key, email, greeting, created_at"


class ContactRequest(Struct, frozen=True, rename="camel"):
    """A request. `createdAt`: the relay's time, which tells a later request from this one."""

    agent: str
    public_key: str
    email: str
    greeting: str
    created_at: str


class _ListedRequest(Struct, frozen=True, rename="camel"):
    from_: str = msgspec.field(name="from")
    public_key: str
    created_at: str = ""
    requester_email: str | None = None
    greeting: str | None = None


class ContactRequests:
    def __init__(self, state: AgentState) -> None:
        self._state = state

    def sync(self, rows: Iterable[Any], now_ms: int) -> list[str]:
        """Store what the relay lists, and forget the rest. Return the listed agents that are
        blocked."""
        listed = {request.agent: request for request in map(_convert, rows) if request}
        blocked = self.find_blocked(listed)
        waiting = [each for name, each in listed.items() if name not in blocked][:REQUESTS_MAX]
        with self._state.transaction() as tx:
            former = set(tx.execute(f"SELECT {_COLUMNS} FROM requests"))
            current = {msgspec.structs.astuple(request) for request in waiting}
            gone, new = former - current, current - former
            tx.executemany("DELETE FROM requests WHERE agent = ?", [(row[0],) for row in gone])
            tx.executemany(
                f"INSERT INTO requests ({_COLUMNS}, seen_ms, set_aside)"
                " VALUES (?, ?, ?, ?, ?, ?, 0)",
                [(*row, now_ms) for row in sorted(new)],
            )
        return sorted(blocked)

    def waiting(self) -> list[ContactRequest]:
        """Return all requests, oldest first."""
        return self._select("1 = 1")

    def find_unasked(self, now_ms: int) -> list[ContactRequest]:
        """Return the requests that a question can be about, oldest first."""
        return self._select("set_aside = 0 AND seen_ms > ?", now_ms - EXPIRY_MS)

    def set_aside(self, requests: Iterable[ContactRequest]) -> None:
        """Keep the requests, without further questions about them."""
        with self._state.transaction() as tx:
            tx.executemany(
                "UPDATE requests SET set_aside = 1 WHERE agent = ? AND created_at = ?",
                [(request.agent, request.created_at) for request in requests],
            )

    def forget(self, agent: str) -> None:
        """Delete a request that was answered."""
        with self._state.transaction() as tx:
            tx.execute("DELETE FROM requests WHERE agent = ?", (agent,))

    def block(self, agent: str) -> None:
        with self._state.transaction() as tx:
            tx.execute("INSERT OR IGNORE INTO blocked (agent) VALUES (?)", (agent,))

    def unblock(self, agent: str) -> None:
        with self._state.transaction() as tx:
            tx.execute("DELETE FROM blocked WHERE agent = ?", (agent,))

    def find_blocked(self, names: Iterable[str]) -> set[str]:
        with self._state.transaction() as tx:
            rows = tx.execute("SELECT agent FROM blocked LIMIT ?", (BLOCKED_MAX,)).fetchall()
        return {agent for (agent,) in rows}.intersection(names)

    def _select(self, where: str, *values: Any) -> list[ContactRequest]:
        with self._state.transaction() as tx:
            rows = tx.execute(
                f"SELECT {_COLUMNS} FROM requests WHERE {where} ORDER BY created_at, agent", values
            ).fetchall()
        return [ContactRequest(*row) for row in rows]


def _convert(row: Any) -> ContactRequest | None:
    """Return a request; None for a row that no agent in this protocol can have."""
    try:
        listed = msgspec.convert(row, _ListedRequest)
        AgentPublicKey.of(listed.public_key)
    except (msgspec.ValidationError, BadKey):
        return None
    if not is_agent_name(listed.from_):
        return None
    return ContactRequest(
        listed.from_, listed.public_key, (listed.requester_email or "")[:EMAIL_CHARACTERS_MAX],
        (listed.greeting or "")[:GREETING_CHARACTERS_MAX], listed.created_at[:40],
    )  # fmt: skip
