"""A network agent's verbs for groups, and for messages to all members."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from appliance.kernel.clock import Clock
from appliance.network.group_log import GroupChange
from appliance.network.names import check_agent_name
from appliance.sdk.network.group_logs import GroupLogs
from appliance.sdk.network.groups import Groups, group_path
from appliance.sdk.network.outgoing import ClaimedMessage, OutgoingMessages, SendReport
from appliance.sdk.network.peers import Peers
from appliance.sdk.network.relay_client import RelayClient

PARALLEL_MAX = 10  # members to which one message goes at once
Row = dict[str, Any]


class GroupVerbs:
    """Verbs for `NetworkAgent`, which has these parts. Each raises BadGroupId, RelayRefused and
    RelayUnreachable."""

    name: str
    relay: RelayClient
    peers: Peers
    groups: Groups
    group_logs: GroupLogs
    outgoing: OutgoingMessages
    _clock: Clock
    _deliver: Callable[[ClaimedMessage], SendReport]

    def create_group(
        self,
        name: str,
        *,
        members_can_invite: bool = False,
        members_can_send: bool = True,
        max_members: int = 50,
    ) -> Row:
        """Make a group with this agent as the owner: `groupId`, `name`, `owner`, `settings`."""
        settings = {
            "membersCanInvite": members_can_invite, "membersCanSend": members_can_send,
            "maxMembers": max_members,
        }  # fmt: skip
        made: Row = self.relay.request("POST", "/groups", {"name": name, "settings": settings})
        self.group_logs.read(str(made["groupId"]))
        return made

    def list_groups(self) -> list[Row]:
        """Return the agent's groups, newest first."""
        rows: list[Row] = self.relay.request("GET", "/groups")
        return rows

    def group_invitations(self) -> list[Row]:
        """Return invitations that wait: `groupId`, `groupName`, `invitedBy`, `greeting`."""
        rows: list[Row] = self.relay.request("GET", "/groups/invitations")
        return rows

    def group_members(self, group_id: str) -> list[Row]:
        """Return the members: `agent`, `role`, `joinedAt`."""
        rows: list[Row] = self.relay.request("GET", f"{group_path(group_id)}/members")
        return rows

    def group_changes(self, group_id: str) -> list[GroupChange]:
        """Return the whole membership log, oldest first, once it is verified. Raises
        GroupLogRefused."""
        group_path(group_id)
        return self.group_logs.read(group_id, whole=True)

    def invite_to_group(self, group_id: str, name: str, greeting: str = "") -> None:
        body = {"agent": check_agent_name(name), "greeting": greeting}
        self._change_group("POST", group_id, "/invite", body)

    def accept_group(self, group_id: str) -> None:
        """Accept an invitation. The log that the relay shows now is the one that must continue."""
        self._change_group("POST", group_id, "/accept")
        self.group_logs.read(group_id)

    def decline_group(self, group_id: str) -> None:
        self._change_group("POST", group_id, "/decline")

    def leave_group(self, group_id: str) -> None:
        """Leave a group. The owner has to transfer or delete the group instead."""
        self._change_group("POST", group_id, "/leave")

    def transfer_group(self, group_id: str, name: str) -> None:
        """Make another member the owner. The former owner becomes an admin."""
        self._change_group("POST", group_id, "/transfer", {"newOwner": check_agent_name(name)})

    def remove_from_group(self, group_id: str, name: str) -> None:
        """Remove a member, or withdraw an invitation."""
        self._change_group("DELETE", group_id, f"/members/{check_agent_name(name)}")

    def delete_group(self, group_id: str) -> None:
        self._change_group("DELETE", group_id)

    def trust_group_log(self, group_id: str) -> None:
        """Trust the log that the relay shows now, after a person has asked the members."""
        group_path(group_id)
        self.group_logs.forget(group_id)
        self.group_logs.read(group_id)

    def send_to_group(self, group_id: str, payload: dict[str, Any]) -> list[SendReport]:
        """Send a message to each other member. Return a report for each. Raises NotInGroup,
        GroupLogRefused, NetworkQueueFull, NetworkMessageTooLarge."""
        names = self.groups.recipients(group_id)
        if not self.peers.contacts.keys() >= set(names):
            self.peers.refresh()
        ids = self.outgoing.add_for_group(group_id, names, payload, self._clock.now_ms())
        claimed = [ClaimedMessage(self.outgoing.report(each), payload) for each in ids]
        with ThreadPoolExecutor(PARALLEL_MAX) as pool:
            return list(pool.map(self._deliver, claimed))

    def _change_group(self, method: str, group_id: str, verb: str = "", body: Any = None) -> None:
        self.groups.forget(group_id)
        self.relay.request(method, group_path(group_id) + verb, body)
        self.groups.forget(group_id)
