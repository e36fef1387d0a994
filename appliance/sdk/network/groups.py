"""An agent's groups with their members, who may send and receive.

Members are read from the relay and cached for a minute. While the relay can't be read, messages to
groups wait: a member that was removed meanwhile must not get them.
"""

import re
from collections.abc import Container
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from appliance.kernel.clock import Clock
from appliance.kernel.errors import Invalid, Missing, Unavailable
from appliance.network.envelope import EnvelopeRefused
from appliance.sdk.network.group_logs import GroupLogs
from appliance.sdk.network.peers import NotAContact
from appliance.sdk.network.relay_client import RelayClient, RelayRefused, RelayUnreachable

FRESH_SECONDS = 60.0
AGAIN_SECONDS = 10.0  # between two reads that unknown senders or groups cause, or after a failure
READ_SECONDS = 5.0
GROUPS_MAX = 100  # as many as an agent can be in
_GROUP_ID = re.compile("[0-9a-f-]{36}")


class BadGroupId(Invalid):
    code = "BAD_GROUP_ID"
    default_message = "this is not a group's id"
    default_hint = "agentlip network group list"


class NotInGroup(Missing):
    code = "NOT_IN_GROUP"
    default_message = "the agent is not a member of this group, or only admins may send"
    default_hint = "agentlip network group members GROUP"


class SenderNotInGroup(EnvelopeRefused):
    code = "SENDER_NOT_IN_GROUP"
    default_message = "the sender may not send to this group, or the recipient is not a member"


class GroupsNotCurrent(Unavailable):
    """The sender may be a new member: it should try again."""

    code = "GROUPS_NOT_CURRENT"
    default_message = "the group's members can't be read from the relay now"
    default_hint = "send the message again in some seconds"


class KnownGroup(Struct, frozen=True):
    """`roles`: by member. `read_at`: seconds of the monotonic clock."""

    roles: dict[str, str]
    members_can_send: bool
    read_at: float

    def may_send(self, name: str) -> bool:
        role = self.roles.get(name)
        return role is not None and (self.members_can_send or role != "member")


class Groups:
    def __init__(self, relay: RelayClient, logs: GroupLogs, clock: Clock) -> None:
        self._relay, self._logs, self._clock = relay, logs, clock
        self._known: dict[str, KnownGroup] = {}
        self._asked_at = self._failed_at = float("-inf")

    def recipients(self, group_id: str) -> list[str]:
        """Return the other members. Raises NotInGroup, GroupLogRefused and the relay's errors."""
        group = self._check_group(group_id)
        if not group.may_send(self._relay.name):
            raise NotInGroup(details={"group": group_id})
        return [name for name in group.roles if name != self._relay.name]

    def check_recipient(self, group_id: str, name: str, contacts: Container[str]) -> None:
        """Check that both agents are members, and contacts. Raises like `recipients`, and
        NotAContact."""
        if name not in self.recipients(group_id):
            raise NotInGroup(details={"group": group_id})
        if name not in contacts:
            raise NotAContact(details={"name": name})

    def check_sender(self, group_id: str, sender: str) -> None:
        """Check that a message's sender may send to the group. Raises SenderNotInGroup, and
        GroupsNotCurrent if the relay has to be read first and can't be."""
        known = self._known.get(group_id)
        if known is None or (self._is_fresh(known) and not known.may_send(sender)):
            self._charge()  # senders can't cause many requests with other ids
            self.forget(group_id)
        try:
            allowed = self._check_group(group_id).may_send(sender)
        except NotInGroup:
            allowed = False
        except (RelayRefused, RelayUnreachable):
            raise GroupsNotCurrent(retry_after=AGAIN_SECONDS) from None
        if not allowed:
            raise SenderNotInGroup

    def forget(self, group_id: str) -> None:
        """Read the members again before the next message."""
        known = self._known.get(group_id)
        if known is not None:
            self._known[group_id] = replace(known, read_at=float("-inf"))

    def _check_group(self, group_id: str) -> KnownGroup:
        self._logs.check(group_id)
        known = self._known.get(group_id)
        return known if known is not None and self._is_fresh(known) else self._read(group_id)

    def _is_fresh(self, known: KnownGroup) -> bool:
        return self._clock.monotonic() - known.read_at < FRESH_SECONDS

    def _charge(self) -> None:
        now = self._clock.monotonic()
        if now - self._asked_at < AGAIN_SECONDS:
            raise GroupsNotCurrent(retry_after=AGAIN_SECONDS)
        self._asked_at = now

    def _read(self, group_id: str) -> KnownGroup:
        path, now = group_path(group_id), self._clock.monotonic()
        if now - self._failed_at < AGAIN_SECONDS:
            raise RelayUnreachable
        try:
            group = self._request(path)
            roles = {
                str(row["agent"]): str(row["role"]) for row in self._request(f"{path}/members")
            }
        except RelayUnreachable:
            self._failed_at = now
            raise
        except RelayRefused as error:
            self._known.pop(group_id, None)
            raise NotInGroup if error.details["status"] in (403, 404) else error from None
        known = KnownGroup(roles, bool(group["settings"]["membersCanSend"]), now)
        while len(self._known) >= GROUPS_MAX:
            self._known.pop(next(iter(self._known)), None)
        self._known[group_id] = known
        return known

    def _request(self, path: str) -> Any:
        return self._relay.attempt("GET", path, seconds=READ_SECONDS)


def group_path(group_id: str) -> str:
    """Return a group's path at the relay. Raises BadGroupId."""
    if _GROUP_ID.fullmatch(group_id) is None:
        raise BadGroupId
    return f"/groups/{group_id}"
