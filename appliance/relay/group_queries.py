"""Reads groups, members and changes. Every listing has a limit."""

from typing import Any, NamedTuple

from appliance.kernel.clock import iso
from appliance.kernel.meta import Executor
from appliance.network.group_log import GroupChange
from appliance.relay.group_wire import GroupRole
from appliance.relay.rows import GroupChangeRow, GroupMemberRow, GroupRow

GROUPS_MAX = 100  # an agent's groups, and its waiting invitations
CHANGES_LISTED_MAX = 500
_GROUPS = (
    "SELECT m.role, (SELECT count(*) FROM group_members AS o WHERE o.group_id = g.id"
    " AND o.status = 'active'), (SELECT hash FROM group_changes AS c WHERE c.group_id = g.id"
    " ORDER BY number DESC LIMIT 1), g.* FROM group_members AS m JOIN groups AS g"
    " ON g.id = m.group_id WHERE m.agent = :agent AND m.status = 'active'"
)


class SeenGroup(NamedTuple):
    """A group with what one member sees."""

    role: GroupRole
    members: int
    head: str
    group: GroupRow


class Invitation(NamedTuple):
    member: GroupMemberRow
    group_name: str


def group(reader: Executor, group_id: str) -> GroupRow | None:
    row = reader.execute("SELECT * FROM groups WHERE id = ?", (group_id,)).fetchone()
    return None if row is None else GroupRow(*row)


def member(reader: Executor, group_id: str, agent: str) -> GroupMemberRow | None:
    """Return an agent's row, also an invitation or a former membership."""
    row = reader.execute(
        "SELECT * FROM group_members WHERE group_id = ? AND agent = ?", (group_id, agent)
    ).fetchone()
    return None if row is None else GroupMemberRow(*row)


def members(reader: Executor, group_id: str) -> list[GroupMemberRow]:
    rows = reader.execute(
        "SELECT * FROM group_members WHERE group_id = ? AND status = 'active'"
        " ORDER BY role = 'owner' DESC, role, agent",
        (group_id,),
    )
    return [GroupMemberRow(*row) for row in rows]


def count_rows(reader: Executor, status: str, *, group_id: str = "", agent: str = "") -> int:
    """Count a group's or an agent's rows with this status."""
    column, value = ("group_id", group_id) if group_id else ("agent", agent)
    row = reader.execute(
        f"SELECT count(*) FROM group_members WHERE {column} = ? AND status = ?", (value, status)
    )
    return int(row.fetchone()[0])


def groups(reader: Executor, agent: str) -> list[SeenGroup]:
    """Return the agent's groups, newest first."""
    rows = reader.execute(
        f"{_GROUPS} ORDER BY g.created_ms DESC, g.id LIMIT {GROUPS_MAX}", {"agent": agent}
    )
    return [_seen(*row) for row in rows]


def seen_group(reader: Executor, group_id: str, agent: str) -> SeenGroup | None:
    row = reader.execute(
        f"{_GROUPS} AND m.group_id = :id", {"agent": agent, "id": group_id}
    ).fetchone()
    return None if row is None else _seen(*row)


def invitations(reader: Executor, agent: str) -> list[Invitation]:
    """Return the invitations that wait for the agent, oldest first."""
    rows = reader.execute(
        "SELECT m.*, g.name FROM group_members AS m JOIN groups AS g ON g.id = m.group_id"
        " WHERE m.agent = ? AND m.status = 'pending' ORDER BY m.invited_ms, g.id LIMIT ?",
        (agent, GROUPS_MAX),
    )
    return [Invitation(GroupMemberRow(*row[:-1]), row[-1]) for row in rows]


def newest_change(reader: Executor, group_id: str) -> GroupChangeRow | None:
    row = reader.execute(
        "SELECT * FROM group_changes WHERE group_id = ? ORDER BY number DESC LIMIT 1", (group_id,)
    ).fetchone()
    return None if row is None else GroupChangeRow(*row)


def changes(reader: Executor, group_id: str, since_ms: int, until_ms: int) -> list[GroupChangeRow]:
    """Return changes after `since_ms` up to `until_ms`, oldest first."""
    rows = reader.execute(
        "SELECT * FROM group_changes WHERE group_id = ? AND at_ms > ? AND at_ms <= ?"
        " ORDER BY at_ms LIMIT ?",
        (group_id, since_ms, until_ms, CHANGES_LISTED_MAX),
    )
    return [GroupChangeRow(*row) for row in rows]


def build_change(row: GroupChangeRow) -> GroupChange:
    return GroupChange(
        row.number, row.agent, row.action, row.by_agent, iso(row.at_ms), row.previous, row.hash,
        row.signature,
    )  # fmt: skip


def _seen(role: GroupRole, members: int, head: str, *group: Any) -> SeenGroup:
    return SeenGroup(role, members, head, GroupRow(*group))
