"""Implements the verbs for groups."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from appliance.kernel.clock import iso
from appliance.kernel.errors import Invalid
from appliance.network.encoding import of_timestamp
from appliance.network.group_log import GroupChange
from appliance.network.names import check_agent_name
from appliance.relay import group_queries, group_writes, metrics
from appliance.relay import group_wire as wire
from appliance.relay.rows import GroupMemberRow, GroupRow
from appliance.relay.service import Relay

FOREVER_MS = 2**53


class RelayGroups:
    """Each verb raises NoSuchGroup; verbs for members raise NotAMember."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def create(self, command: wire.CreateGroup, agent: str) -> wire.GroupCreated:
        self._relay.limits.charge("groups", agent)
        group_id = str(uuid4())
        self._change(group_writes.create, agent, group_id, command)
        group = self._find(group_id)
        return wire.GroupCreated(
            group.id, group.name, group.owner, _settings(group), iso(group.created_ms)
        )

    def invite(self, group_id: str, command: wire.InviteMember, agent: str) -> wire.GroupDone:
        self._relay.limits.charge("invitations", agent)
        invitee = check_agent_name(command.agent)
        self._change(group_writes.invite, agent, group_id, invitee, command.greeting)
        return wire.GroupDone("invited")

    def accept(self, group_id: str, agent: str) -> wire.GroupDone:
        self._change(group_writes.accept, agent, group_id)
        return wire.GroupDone("accepted")

    def decline(self, group_id: str, agent: str) -> wire.GroupDone:
        self._change(group_writes.decline, agent, group_id)
        return wire.GroupDone("declined")

    def leave(self, group_id: str, agent: str) -> wire.GroupDone:
        self._change(group_writes.leave, agent, group_id)
        return wire.GroupDone("left")

    def transfer(self, group_id: str, command: wire.TransferGroup, agent: str) -> wire.GroupDone:
        self._change(group_writes.transfer, agent, group_id, command.new_owner)
        return wire.GroupDone("transferred")

    def remove(self, group_id: str, member: str, agent: str) -> wire.GroupDone:
        self._change(group_writes.remove, agent, group_id, member)
        return wire.GroupDone("removed")

    def dissolve(self, group_id: str, agent: str) -> wire.GroupDone:
        self._change(group_writes.dissolve, agent, group_id)
        return wire.GroupDone("dissolved")

    def groups(self, agent: str) -> list[wire.GroupEntry]:
        """Return the agent's groups, newest first."""
        return [_entry(seen) for seen in self._relay.store.read(group_queries.groups, agent)]

    def group(self, group_id: str, agent: str) -> wire.GroupEntry:
        self._find(group_id)
        seen = self._relay.store.read(group_queries.seen_group, group_id, agent)
        if seen is None:
            raise wire.NotAMember
        return _entry(seen)

    def members(self, group_id: str, agent: str) -> list[wire.MemberEntry]:
        self._find(group_id)
        rows = self._relay.store.read(group_queries.members, group_id)
        if agent not in {row.agent for row in rows}:
            raise wire.NotAMember
        return [
            wire.MemberEntry(row.agent, row.role, iso(row.joined_ms or row.invited_ms))
            for row in rows
        ]

    def invitations(self, agent: str) -> list[wire.InvitationEntry]:
        return [
            wire.InvitationEntry(
                row.group_id, name, row.invited_by or "", row.greeting, iso(row.invited_ms)
            )
            for row, name in self._relay.store.read(group_queries.invitations, agent)
        ]

    def changes(self, group_id: str, query: wire.ChangesQuery, agent: str) -> list[GroupChange]:
        """Return changes for members and invited agents; for former members up to their end."""
        try:
            since_ms = of_timestamp(query.since)
        except (ValueError, OverflowError):
            raise Invalid("since is not like 2026-02-17T12:00:00.000Z") from None
        self._find(group_id)
        member: GroupMemberRow | None = self._relay.store.read(
            group_queries.member, group_id, agent
        )
        if member is None:
            raise wire.NotAMember
        until_ms = member.left_ms or FOREVER_MS
        rows = self._relay.store.read(group_queries.changes, group_id, since_ms, until_ms)
        return [group_queries.build_change(row) for row in rows]

    def _find(self, group_id: str) -> GroupRow:
        group: GroupRow | None = self._relay.store.read(group_queries.group, group_id)
        if group is None:
            raise wire.NoSuchGroup
        return group

    def _change(
        self, verb: Callable[..., None], agent: str, group_id: str, *arguments: Any
    ) -> None:
        self._relay.write(agent, verb, agent, group_id, *arguments)
        metrics.group_changes.labels(verb.__name__).inc()
        self._relay.log.info("relay", event=f"group.{verb.__name__}", agent=agent, group=group_id)


def _settings(group: GroupRow) -> wire.GroupSettings:
    return wire.GroupSettings(
        bool(group.members_can_invite), bool(group.members_can_send), group.max_members
    )


def _entry(seen: group_queries.SeenGroup) -> wire.GroupEntry:
    group = seen.group
    return wire.GroupEntry(
        group.id, group.name, group.owner, seen.role, _settings(group), seen.members,
        seen.head, iso(group.created_ms),
    )  # fmt: skip
