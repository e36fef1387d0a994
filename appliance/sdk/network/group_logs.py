"""Checks that the relay's log for each group continues the log that the agent has seen.

The newest row seen is kept for each group. If the relay's log does not continue this row, the group
is refused, for sending and receiving, until a person trusts the relay's log.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec

from appliance.network.broadcast import RELAY_SENDER
from appliance.network.group_log import GroupChange, GroupLogRefused, verify_changes
from appliance.network.keys import AgentPublicKey
from appliance.sdk.network.peers import Peers
from appliance.sdk.network.relay_client import RelayClient, RelayRefused
from appliance.sdk.network.state import AgentState

PAGE, PAGES_MAX = 500, 20
READ_MAX = 20  # groups whose changes one heartbeat reads
BEGINNING = "1970-01-01T00:00:00Z"
INVITATIONS = "group-invitations"
GONE = (403, 404)


class GroupLogs:
    def __init__(self, relay: RelayClient, peers: Peers, state: AgentState) -> None:
        self.relay, self._peers, self.state = relay, peers, state

    def check(self, group_id: str) -> None:
        """Check that the group's log was not refused. Raises GroupLogRefused."""
        if self._head(group_id)[2]:
            raise GroupLogRefused(details={"group": group_id})

    def heads(self) -> dict[str, str]:
        """Return the newest hash seen, by group."""
        with self.state.transaction() as tx:
            return dict(tx.execute("SELECT group_id, hash FROM group_heads").fetchall())

    def read(self, group_id: str, *, whole: bool = False) -> list[GroupChange]:
        """Return new changes, or the whole log. Raises GroupLogRefused."""
        at, head, _ = self._head(group_id)
        changes = self._request(group_id, BEGINNING if whole or not at else at)
        start = changes[0].previous if changes and (whole or not at) else head
        try:
            newest = verify_changes(group_id, changes, start, self._key())
            if whole and head and head not in {change.hash for change in changes}:
                raise GroupLogRefused(details={"group": group_id})
        except GroupLogRefused:
            self.refuse(group_id)
            raise
        if changes:
            self._put(group_id, changes[-1].timestamp, newest)
        return changes

    def refuse(self, group_id: str) -> None:
        with self.state.transaction() as tx:
            tx.execute(
                "INSERT INTO group_heads (group_id, at, hash, refused) VALUES (?, '', '', 1)"
                " ON CONFLICT DO UPDATE SET refused = 1",
                (group_id,),
            )

    def forget(self, group_id: str) -> None:
        """Forget the newest row; the next read trusts the relay's log."""
        with self.state.transaction() as tx:
            tx.execute("DELETE FROM group_heads WHERE group_id = ?", (group_id,))

    def _key(self) -> AgentPublicKey:
        """Return the relay's own key, which is as old as its first start or group."""
        if RELAY_SENDER not in self._peers.admin_keys():
            self._peers.refresh()
        key = self._peers.admin_keys().get(RELAY_SENDER)
        if key is None:
            raise GroupLogRefused("the relay shows no own key")
        return key

    def _head(self, group_id: str) -> tuple[str, str, bool]:
        with self.state.transaction() as tx:
            row = tx.execute(
                "SELECT at, hash, refused FROM group_heads WHERE group_id = ?", (group_id,)
            ).fetchone()
        return ("", "", False) if row is None else (row[0], row[1], bool(row[2]))

    def _put(self, group_id: str, at: str, digest: str) -> None:
        with self.state.transaction() as tx:
            tx.execute(
                "INSERT INTO group_heads (group_id, at, hash, refused) VALUES (?, ?, ?, 0)"
                " ON CONFLICT DO UPDATE SET at = excluded.at, hash = excluded.hash",
                (group_id, at, digest),
            )

    def _request(self, group_id: str, since: str) -> list[GroupChange]:
        changes: list[GroupChange] = []
        for _ in range(PAGES_MAX):
            path = f"/groups/{group_id}/changes?since={quote(since)}"
            page = _convert(self.relay.request("GET", path))
            changes += page
            if len(page) < PAGE:
                break
            since = page[-1].timestamp
        return changes


def _convert(rows: Any) -> list[GroupChange]:
    try:
        return msgspec.convert(rows, list[GroupChange])
    except msgspec.ValidationError:
        raise GroupLogRefused("the relay's log for this group has no hash chain") from None


def poll_groups(logs: GroupLogs, forget: Callable[[str], None], emit: Callable[..., None]) -> None:
    """Emit new invitations, and changes in groups that were seen before; `forget` the members of
    a changed group. Skip a relay without groups."""
    try:
        rows = {str(row["groupId"]): row for row in logs.relay.request("GET", "/groups")}
        invitations = logs.relay.request("GET", "/groups/invitations")
    except RelayRefused as error:
        if error.details["status"] != 404:
            raise
        return
    _emit_invitations(logs.state, invitations, emit)
    heads = logs.heads()
    shown = {group_id: row.get("head") for group_id, row in rows.items()}
    changed = [each for each in heads.keys() | shown.keys() if heads.get(each) != shown.get(each)]
    for group_id in changed[:READ_MAX]:
        forget(group_id)
        try:
            _emit_changes(logs, group_id, group_id in heads, emit)
        except GroupLogRefused as error:
            emit("group-log-refused", logs.relay.name, groupId=group_id, reason=error.message)
        if group_id not in rows:
            logs.forget(group_id)


def _emit_changes(
    logs: GroupLogs, group_id: str, was_seen: bool, emit: Callable[..., None]
) -> None:
    try:
        logs.check(group_id)
        changes = logs.read(group_id)
    except RelayRefused as error:  # the agent is not a member any more
        if error.details["status"] not in GONE:
            raise
        return
    if not changes:
        logs.refuse(group_id)
        raise GroupLogRefused
    for change in changes if was_seen else ():
        emit(
            "group-changed", change.agent, groupId=group_id, action=change.action, by=change.by,
            timestamp=change.timestamp,
        )  # fmt: skip


def _emit_invitations(
    state: AgentState, rows: list[dict[str, Any]], emit: Callable[..., None]
) -> None:
    waiting = {f"{row['groupId']}@{row['createdAt']}": row for row in rows}
    seen = state.cursor(INVITATIONS).split()
    for name, row in waiting.items():
        if name not in seen:
            emit("group-invited", str(row["invitedBy"]), **row)
    state.set_cursor(INVITATIONS, " ".join(waiting))
