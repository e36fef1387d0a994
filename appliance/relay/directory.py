"""Keeps agents and admins in memory, with parsed keys, so that authentication waits for no read.
A change is in the store first, except direct addresses, which come with each heartbeat."""

from collections.abc import Iterable

from appliance.network.direct import DirectAddresses
from appliance.network.keys import AgentPublicKey
from appliance.relay.rows import AgentRow, RelayAdminRow
from appliance.relay.states import REVOKED


class AgentDirectory:
    def __init__(self) -> None:
        self.agents: dict[str, AgentRow] = {}
        self.admins: dict[str, RelayAdminRow] = {}
        self.direct: dict[str, DirectAddresses | None] = {}
        self._keys: dict[str, AgentPublicKey] = {}

    def load(self, agents: Iterable[AgentRow], admins: Iterable[RelayAdminRow]) -> None:
        self.agents = {row.name: row for row in agents}
        self.admins = {row.agent: row for row in admins}

    def put(self, row: AgentRow) -> None:
        former = self.agents.get(row.name)
        if former is not None and former.public_key != row.public_key:
            self._keys.pop(former.public_key, None)
        self.agents[row.name] = row

    def key(self, text: str) -> AgentPublicKey:
        """Return a stored key. Parsing a key takes longer than verifying a signature."""
        key = self._keys.get(text)
        if key is None:
            key = self._keys[text] = AgentPublicKey.of(text)
        return key

    def may_decide(self, admin: str) -> bool:
        """Return whether this is an admin, and not revoked as an agent."""
        row = self.agents.get(admin)
        return admin in self.admins and (row is None or row.status != REVOKED)

    def admin_keys(self) -> dict[str, AgentPublicKey]:
        """Return the admins' keys, by name."""
        return {name: self.key(row.public_key) for name, row in self.admins.items()}
