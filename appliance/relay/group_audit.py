"""Finds groups whose members or log were changed by another program than the relay."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from appliance.kernel.meta import Executor
from appliance.network.group_log import GroupChange, change_hash, is_change_signed
from appliance.network.keys import AgentPublicKey
from appliance.relay.group_queries import build_change
from appliance.relay.queries import relay_key
from appliance.relay.rows import GroupChangeRow

_ACTIVE = "FROM group_members AS m WHERE m.group_id = g.id AND m.status = 'active'"
_RULES = (
    (f"(SELECT group_concat(agent) {_ACTIVE} AND role = 'owner') IS NOT owner",
     "the owner is not the one member with this role"),
    (f"(SELECT count(*) {_ACTIVE}) > max_members", "has more members than its limit"),
    (f"EXISTS (SELECT 1 {_ACTIVE} AND (SELECT action FROM group_changes AS c WHERE"
     " c.group_id = g.id AND c.agent = m.agent AND action IN ('joined', 'left', 'removed')"
     " ORDER BY number DESC LIMIT 1) IN ('left', 'removed'))", "a member has left, by the log"),
)  # fmt: skip


def find_problems(reader: Executor) -> list[str]:
    problems = [
        f"group {group_id}: {text}"
        for condition, text in _RULES
        for (group_id,) in reader.execute(
            f"SELECT id FROM groups AS g WHERE dissolved_ms IS NULL AND {condition} ORDER BY id"
        )
    ]
    own = relay_key(reader)
    broken = _find_broken(reader, own.key.public) if own is not None else ()
    return [*problems, *(f"group {each}: the log is not one signed chain" for each in broken)]


def _find_broken(reader: Executor, key: AgentPublicKey) -> Iterator[str]:
    rows = reader.execute("SELECT * FROM group_changes ORDER BY group_id, number")
    changes = (GroupChangeRow(*row) for row in rows)
    for group_id, group in groupby(changes, lambda row: row.group_id):
        if not _is_whole(group_id, [build_change(row) for row in group], key):
            yield group_id


def _is_whole(group_id: str, changes: Sequence[GroupChange], key: AgentPublicKey) -> bool:
    """Return whether the rows are a chain. The last signature covers all rows before."""
    head = "" if changes[0].number == 1 else changes[0].previous  # older rows are deleted
    for change in changes:
        if (change.previous, change.hash) != (head, change_hash(group_id, change)):
            return False
        head = change.hash
    return is_change_signed(key, changes[-1])
