"""Pinned keys: each contact's first key, or the one that a person accepted.

    new       seen first, not compared
    verified  a person compared the safety numbers
    changed   the relay shows another key: nothing is sent until a person accepts it

A key that the pinned one signed over to (a rotation) is followed, and is new again.
"""

from typing import Literal

from msgspec import Struct

from appliance.kernel.errors import Conflict
from appliance.network.keys import AgentPublicKey, BadKey, rotation_text
from appliance.sdk.network.state import AgentState

PinState = Literal["new", "verified", "changed"]
PINS_MAX = 10_000


class KeyChanged(Conflict):
    code = "KEY_CHANGED"
    default_message = "the relay shows another key for this agent than before"
    default_hint = (
        "compare with the owner: agentlip network verify AGENT; then --accept FINGERPRINT"
    )


class KeyPin(Struct, frozen=True):
    agent: str
    key: str
    verified: bool = False
    offered: str | None = None  # another key, which the relay shows and nobody has accepted

    @property
    def state(self) -> PinState:
        if self.offered is not None:
            return "changed"
        return "verified" if self.verified else "new"


class KeyPins:
    def __init__(self, state: AgentState) -> None:
        self._state = state

    def all(self) -> dict[str, KeyPin]:
        with self._state.transaction() as tx:
            rows = tx.execute("SELECT agent, key, verified, offered FROM pins LIMIT ?", (PINS_MAX,))
            return {row[0]: _pin(row) for row in rows}

    def get(self, agent: str) -> KeyPin | None:
        with self._state.transaction() as tx:
            row = tx.execute(
                "SELECT agent, key, verified, offered FROM pins WHERE agent = ?", (agent,)
            ).fetchone()
        return None if row is None else _pin(row)

    def count_changed(self) -> int:
        with self._state.transaction() as tx:
            (count,) = tx.execute("SELECT count(*) FROM pins WHERE offered IS NOT NULL").fetchone()
        return int(count)

    def put(self, pin: KeyPin) -> None:
        with self._state.transaction() as tx:
            tx.execute(
                "INSERT OR REPLACE INTO pins (agent, key, verified, offered) VALUES (?, ?, ?, ?)",
                (pin.agent, pin.key, int(pin.verified), pin.offered),
            )

    def remove(self, agent: str) -> None:
        with self._state.transaction() as tx:
            tx.execute("DELETE FROM pins WHERE agent = ?", (agent,))

    def revoke(self, agent: str) -> None:
        """Revoke a pin: an admin announced that the agent is revoked, which is final."""
        with self._state.transaction() as tx:
            tx.execute("INSERT OR IGNORE INTO revoked (agent) VALUES (?)", (agent,))

    def is_revoked(self, agent: str) -> bool:
        with self._state.transaction() as tx:
            row = tx.execute("SELECT 1 FROM revoked WHERE agent = ?", (agent,)).fetchone()
        return row is not None

    def revoked_agents(self) -> frozenset[str]:
        with self._state.transaction() as tx:
            rows = tx.execute("SELECT agent FROM revoked LIMIT ?", (PINS_MAX,)).fetchall()
        return frozenset(agent for (agent,) in rows)


def pin_after(
    pin: KeyPin | None, agent: str, shown: str, former: str | None, rotation: str | None
) -> KeyPin:
    """Return the pin for `agent` after the relay shows its key, perhaps with the signature by
    which `former` gave way to it. Raises BadKey."""
    key = AgentPublicKey.of(shown)
    if pin is None:
        return KeyPin(agent, shown)
    if shown == pin.key:
        return KeyPin(agent, pin.key, pin.verified)
    if former == pin.key and rotation is not None and _is_rotation(agent, former, key, rotation):
        return KeyPin(agent, shown)
    return KeyPin(agent, pin.key, pin.verified, shown)


def _pin(row: tuple[str, str, int, str | None]) -> KeyPin:
    agent, key, verified, offered = row
    return KeyPin(agent, key, bool(verified), offered)


def _is_rotation(agent: str, former: str, key: AgentPublicKey, signature: str) -> bool:
    try:
        signer = AgentPublicKey.of(former)
    except BadKey:
        return False
    return signer.is_signed(rotation_text(agent, signer, key), signature)
