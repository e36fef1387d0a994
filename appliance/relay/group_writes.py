"""Changes groups, each change with its signed log row in one transaction. Module-level, with
arguments that pickle."""

from appliance.kernel.batch import Tx
from appliance.kernel.clock import DAY_MS, iso
from appliance.network.broadcast import RELAY_SENDER, SignedBroadcast
from appliance.network.group_log import GroupAction, GroupChange, change_hash, sign_change
from appliance.relay import group_queries, group_wire, writes
from appliance.relay.queries import are_contacts, relay_key
from appliance.relay.rows import GroupMemberRow, GroupRow

CHANGES_MAX = 10_000  # a group's newest changes are kept
DISSOLVED_DAYS = 30
PENDING, ACTIVE = "pending", "active"
OWNER, ADMIN, MEMBER = "owner", "admin", "member"


def create(tx: Tx, agent: str, group_id: str, command: group_wire.CreateGroup) -> None:
    _check_room(tx, agent, ACTIVE)
    chosen = command.settings or group_wire.GroupSettings()
    tx.execute(
        "INSERT INTO groups (id, name, owner, members_can_invite, members_can_send, max_members,"
        " created_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (group_id, command.name, agent, chosen.members_can_invite, chosen.members_can_send,
         min(chosen.max_members, group_wire.MEMBERS_MAX), tx.now_ms),
    )  # fmt: skip
    tx.execute(
        "INSERT INTO group_members (group_id, agent, role, status, invited_ms, joined_ms)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (group_id, agent, OWNER, ACTIVE, tx.now_ms, tx.now_ms),
    )
    _log(tx, group_id, agent, "joined", agent)


def invite(tx: Tx, agent: str, group_id: str, invitee: str, greeting: str | None) -> None:
    group, member = _group(tx, group_id), _member(tx, group_id, agent)
    if member.role == MEMBER and not group.members_can_invite:
        raise group_wire.GroupRoleMissing(details={"group": group_id})
    if not are_contacts(tx, agent, invitee):
        raise group_wire.NotContacts
    present = group_queries.member(tx, group_id, invitee)
    if present is not None and present.status in (PENDING, ACTIVE):
        raise group_wire.MemberExists(details={"group": group_id})
    _check_size(tx, group)
    if group_queries.count_rows(tx, PENDING, group_id=group_id) >= group_wire.MEMBERS_MAX:
        raise group_wire.GroupFull
    _check_room(tx, invitee, PENDING)
    tx.execute(
        "INSERT OR REPLACE INTO group_members (group_id, agent, role, status, invited_by,"
        " greeting, invited_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (group_id, invitee, MEMBER, PENDING, agent, greeting, tx.now_ms),
    )
    _log(tx, group_id, invitee, "invited", agent)


def accept(tx: Tx, agent: str, group_id: str) -> None:
    group = _group(tx, group_id)
    _check_invited(tx, group_id, agent)
    _check_size(tx, group)
    _check_room(tx, agent, ACTIVE)
    tx.execute(
        "UPDATE group_members SET status = ?, joined_ms = ? WHERE group_id = ? AND agent = ?",
        (ACTIVE, tx.now_ms, group_id, agent),
    )
    _log(tx, group_id, agent, "joined", agent)


def decline(tx: Tx, agent: str, group_id: str) -> None:
    _group(tx, group_id)
    _check_invited(tx, group_id, agent)
    tx.execute("DELETE FROM group_members WHERE group_id = ? AND agent = ?", (group_id, agent))
    _log(tx, group_id, agent, "declined", agent)


def leave(tx: Tx, agent: str, group_id: str) -> None:
    _group(tx, group_id)
    member = group_queries.member(tx, group_id, agent)
    if member is None or member.status != ACTIVE:
        raise group_wire.NoSuchMember(details={"group": group_id})
    if member.role == OWNER:
        raise group_wire.OwnerStays
    _end(tx, group_id, agent, "left", agent)


def transfer(tx: Tx, agent: str, group_id: str, new_owner: str) -> None:
    """Make another member the owner, and the former owner an admin."""
    _group(tx, group_id)
    if _member(tx, group_id, agent).role != OWNER:
        raise group_wire.GroupRoleMissing(details={"group": group_id})
    target = group_queries.member(tx, group_id, new_owner)
    if target is None or target.status != ACTIVE:
        raise group_wire.NoSuchMember(details={"group": group_id})
    if new_owner != agent:
        _set_role(tx, group_id, agent, ADMIN)
        _set_owner(tx, group_id, new_owner, agent)


def remove(tx: Tx, agent: str, group_id: str, other: str) -> None:
    """Remove a member, or withdraw an invitation."""
    _group(tx, group_id)
    role = _member(tx, group_id, agent).role
    if role == MEMBER:
        raise group_wire.GroupRoleMissing(details={"group": group_id})
    target = group_queries.member(tx, group_id, other)
    if target is None or target.status not in (PENDING, ACTIVE):
        raise group_wire.NoSuchMember(details={"group": group_id})
    if target.role == OWNER or (target.role == ADMIN and role != OWNER):
        raise group_wire.GroupRoleMissing(details={"group": group_id})
    _end(tx, group_id, other, "removed", agent)


def dissolve(tx: Tx, agent: str, group_id: str) -> None:
    group, member = _group(tx, group_id), _member(tx, group_id, agent)
    if member.role == MEMBER:
        raise group_wire.GroupRoleMissing(details={"group": group_id})
    if member.role == ADMIN and tx.now_ms - _seen_ms(tx, group) <= group_wire.ABSENT_DAYS * DAY_MS:
        raise group_wire.OwnerPresent
    _dissolve(tx, group_id, agent)


def revoke(
    tx: Tx, name: str, admin: str, broadcast_id: str, broadcast: SignedBroadcast | None = None
) -> str:
    """Revoke an agent as `relay.writes` does, and end its memberships and invitations. A group
    gets the oldest admin as its owner, otherwise the oldest member."""
    status = writes.revoke(tx, name, admin, broadcast_id, broadcast)
    _end_all(tx, admin, "agent = ?", name)
    return status


def end_lost(tx: Tx) -> None:
    """End the memberships of agents that a restore has removed. Another agent may register such a
    name."""
    _end_all(tx, RELAY_SENDER, "agent NOT IN (SELECT name FROM agents)")


def prune(tx: Tx) -> int:
    """Delete up to 100 groups that were dissolved 30 days ago; return how many."""
    rows = tx.execute(
        "SELECT id FROM groups WHERE dissolved_ms < ? LIMIT 100",
        (tx.now_ms - DISSOLVED_DAYS * DAY_MS,),
    ).fetchall()
    for table, column in (("group_members", "group_id"), ("group_changes", "group_id"),
                          ("groups", "id")):  # fmt: skip
        tx.executemany(f"DELETE FROM {table} WHERE {column} = ?", rows)
    return len(rows)


# -- steps -------------------------------------------------------------------------------


def _group(tx: Tx, group_id: str) -> GroupRow:
    group = group_queries.group(tx, group_id)
    if group is None or group.dissolved_ms is not None:
        raise group_wire.NoSuchGroup
    return group


def _member(tx: Tx, group_id: str, agent: str) -> GroupMemberRow:
    member = group_queries.member(tx, group_id, agent)
    if member is None or member.status != ACTIVE:
        raise group_wire.NotAMember
    return member


def _check_invited(tx: Tx, group_id: str, agent: str) -> None:
    member = group_queries.member(tx, group_id, agent)
    if member is None or member.status != PENDING:
        raise group_wire.NoSuchInvitation


def _check_size(tx: Tx, group: GroupRow) -> None:
    if group_queries.count_rows(tx, ACTIVE, group_id=group.id) >= group.max_members:
        raise group_wire.GroupFull


def _check_room(tx: Tx, agent: str, status: str) -> None:
    if group_queries.count_rows(tx, status, agent=agent) >= group_queries.GROUPS_MAX:
        raise group_wire.TooManyGroups


def _seen_ms(tx: Tx, group: GroupRow) -> int:
    """Return when the owner was seen last, at the earliest when the group was made."""
    (seen_ms,) = tx.execute(
        "SELECT max(coalesce(last_seen_ms, 0), ?) FROM agents WHERE name = ?",
        (group.created_ms, group.owner),
    ).fetchone()
    return int(seen_ms)


def _end_all(tx: Tx, by: str, condition: str, *values: str) -> None:
    """End memberships and invitations, and give each group without an owner another one."""
    rows = tx.execute(
        f"SELECT * FROM group_members WHERE status IN ('pending', 'active') AND {condition}", values
    ).fetchall()
    members = [GroupMemberRow(*row) for row in rows]
    for member in members:
        _end(tx, member.group_id, member.agent, "removed", by)
    for member in members:
        if member.role == OWNER:
            _promote(tx, member.group_id, by)


def _end(tx: Tx, group_id: str, agent: str, status: GroupAction, by: str) -> None:
    tx.execute(
        "UPDATE group_members SET status = ?, left_ms = ? WHERE group_id = ? AND agent = ?",
        (status, _log(tx, group_id, agent, status, by), group_id, agent),
    )


def _set_role(tx: Tx, group_id: str, agent: str, role: str) -> None:
    tx.execute(
        "UPDATE group_members SET role = ? WHERE group_id = ? AND agent = ?",
        (role, group_id, agent),
    )


def _set_owner(tx: Tx, group_id: str, agent: str, by: str) -> None:
    _set_role(tx, group_id, agent, OWNER)
    tx.execute("UPDATE groups SET owner = ? WHERE id = ?", (agent, group_id))
    _log(tx, group_id, agent, "ownership-transferred", by)


def _promote(tx: Tx, group_id: str, admin: str) -> None:
    row = tx.execute(
        "SELECT agent FROM group_members WHERE group_id = ? AND status = 'active'"
        " ORDER BY role = 'admin' DESC, joined_ms, agent LIMIT 1",
        (group_id,),
    ).fetchone()
    if row is None:
        _dissolve(tx, group_id, admin)
    else:
        _set_owner(tx, group_id, row[0], admin)


def _dissolve(tx: Tx, group_id: str, by: str) -> None:
    at_ms = _log(tx, group_id, by, "dissolved", by)
    tx.execute("UPDATE groups SET dissolved_ms = ? WHERE id = ?", (tx.now_ms, group_id))
    tx.execute(
        "UPDATE group_members SET status = 'left', left_ms = ? WHERE group_id = ?"
        " AND status IN ('pending', 'active')",
        (at_ms, group_id),
    )


def _log(tx: Tx, group_id: str, agent: str, action: GroupAction, by: str) -> int:
    """Append to the group's log, and delete the oldest rows beyond the limit. Return the change's
    time in ms, which no other change in the group has."""
    writes.make_relay_key(tx)
    own, last = relay_key(tx), group_queries.newest_change(tx, group_id)
    assert own is not None
    number, previous = (1, "") if last is None else (last.number + 1, last.hash)
    at_ms = tx.now_ms if last is None else max(tx.now_ms, last.at_ms + 1)
    change = GroupChange(number, agent, action, by, iso(at_ms), previous)
    digest = change_hash(group_id, change)
    tx.execute(
        "INSERT INTO group_changes (group_id, number, agent, action, by_agent, at_ms, previous,"
        " hash, signature) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (group_id, number, agent, action, by, at_ms, previous, digest,
         sign_change(own.key, digest)),
    )  # fmt: skip
    tx.execute(
        "DELETE FROM group_changes WHERE group_id = ? AND number <= ?",
        (group_id, number - CHANGES_MAX),
    )
    return at_ms
