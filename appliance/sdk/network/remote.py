"""Uses a network agent in an appliance, which may run on another machine.

    with RemoteAgent(url="https://hub.example.org", token=token, own="anna") as anna:
        for request in anna.pending_requests():
            anna.accept_contact(request["from"])

Methods have the names and results of `NetworkAgent`. To send, use the outbox: `network:NAME`.
"""

from pathlib import Path
from typing import Any

import msgspec

from appliance.network.group_log import GroupChange
from appliance.sdk.calls import HubCalls, T
from appliance.sdk.http import HubConnections, Retry
from appliance.sdk.network.broadcasts import KeptBroadcast
from appliance.sdk.network.key_verbs import KeyLogEnd
from appliance.sdk.network.outgoing import SendReport
from appliance.sdk.network.peers import CachedContact
from appliance.sdk.network.pins import KeyPin
from appliance.sdk.network.requests import ContactRequest
from appliance.sdk.paths import path_segment
from appliance.sdk.target import HubTarget

PATH = "/api/v1/network"


class RemoteAgent(HubCalls):
    """One agent, by workspace or by URL as for `Client`. Needs `network:read`, and `network:write`
    for changes. `own`: the agent's name; None: the appliance's only agent."""

    def __init__(
        self,
        workspace: Path | str | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        token_file: Path | str | None = None,
        own: str | None = None,
        retry: Retry | None = None,
    ) -> None:
        target = HubTarget(workspace, url, token, token_file)
        self._hubs = HubConnections(target.locate, retry)
        self._own = own

    def close(self) -> None:
        self._hubs.close()

    def contacts(self) -> list[CachedContact]:
        return self._read("contacts", list[CachedContact])

    def pins(self) -> list[KeyPin]:
        return self._read("contacts", list[KeyPin], field="pins")

    def pending_requests(self) -> list[dict[str, Any]]:
        requests = self._read("requests", list[ContactRequest])
        return [
            {
                "from": request.agent, "greeting": request.greeting,
                "publicKey": request.public_key, "requesterEmail": request.email,
                "createdAt": request.created_at,
            }
            for request in requests
        ]  # fmt: skip

    def broadcasts(self, before: int = 0, limit: int = 100) -> list[KeptBroadcast]:
        return self._read("broadcasts", list[KeptBroadcast], before=before, limit=limit)

    def reports(self) -> list[SendReport]:
        return self._read("reports", list[SendReport], limit=200)

    def report(self, message_id: str) -> SendReport:
        return self._read("reports", list[SendReport], id=message_id)[0]

    def request_contact(self, name: str, greeting: str = "") -> None:
        self._change("request", name, greeting=greeting)

    def accept_contact(self, name: str) -> None:
        self._change("answer", name, answer="accept")

    def deny_contact(self, name: str) -> None:
        self._change("answer", name, answer="deny")

    def block_contact(self, name: str) -> None:
        self._change("answer", name, answer="block")

    def remove_contact(self, name: str) -> None:
        self._change("remove", name)

    def safety_number(self, name: str) -> str:
        return str(self._key(name)["safetyNumber"])

    def confirm_key(self, name: str) -> None:
        """Note that a person compared the safety number, which `safety_number` has shown."""
        self._change("confirm", name, fingerprint=self._key(name)["fingerprint"])

    def accept_key(self, name: str, shown: str) -> None:
        self._change("confirm", name, fingerprint=shown, accept=True)

    def create_group(
        self,
        name: str,
        *,
        members_can_invite: bool = False,
        members_can_send: bool = True,
        max_members: int = 50,
    ) -> dict[str, Any]:
        """Make a group with this agent as the owner: `groupId`."""
        return self._change(
            "groups", name, members_can_invite=members_can_invite,
            members_can_send=members_can_send, max_members=max_members,
        )  # fmt: skip

    def list_groups(self) -> list[dict[str, Any]]:
        return self._read("groups", list[dict[str, Any]])

    def group_invitations(self) -> list[dict[str, Any]]:
        return self._read("groups", list[dict[str, Any]], field="invitations")

    def group_members(self, group_id: str) -> list[dict[str, Any]]:
        return self._read("group-members", list[dict[str, Any]], field="members", group=group_id)

    def group_changes(self, group_id: str) -> list[GroupChange]:
        """Return the newest 500 changes, oldest first, once the whole log is verified."""
        return self._read("group-changes", list[GroupChange], field="changes", group=group_id)

    def invite_to_group(self, group_id: str, name: str, greeting: str = "") -> None:
        self._change_group("invite", group_id, name, greeting=greeting)

    def accept_group(self, group_id: str) -> None:
        self._change_group("accept", group_id)

    def decline_group(self, group_id: str) -> None:
        self._change_group("decline", group_id)

    def leave_group(self, group_id: str) -> None:
        self._change_group("leave", group_id)

    def transfer_group(self, group_id: str, name: str) -> None:
        self._change_group("transfer", group_id, name)

    def remove_from_group(self, group_id: str, name: str) -> None:
        self._change_group("remove", group_id, name)

    def delete_group(self, group_id: str) -> None:
        self._change_group("delete", group_id)

    def trust_group_log(self, group_id: str) -> None:
        self._change_group("trust", group_id)

    def send_to_group(self, group_id: str, payload: dict[str, Any]) -> list[SendReport]:
        """Send the payload's `text` to each other member."""
        sent = self._change("group-send", None, group=group_id, text=payload["text"])
        return msgspec.convert(sent["reports"], list[SendReport])

    def read_key_log(self, *, accept: bool = False) -> KeyLogEnd:
        if accept:
            self._change("key", None, action="accept-log")
        return self._get(f"{PATH}/key-log", KeyLogEnd, None, own=self._own)

    def rotate_key(self) -> str:
        return str(self._change("key", None, action="rotate")["publicKey"])

    def cancel_recovery(self) -> None:
        self._change("key", None, action="cancel-recovery")

    def request_code(self, email: str) -> None:
        self._change("recover", None, email=email)

    def recover(self, email: str, code: str) -> str:
        return str(self._change("recover", None, email=email, code=code)["effectiveAt"])

    def _key(self, name: str) -> dict[str, Any]:
        path = f"{PATH}/contacts/{path_segment(name)}"
        return self._get(path, dict[str, Any], None, own=self._own)

    def _read(self, what: str, kind: type[T], field: str | None = None, **query: Any) -> T:
        return self._get(f"{PATH}/{what}", kind, field or what, own=self._own, **query)

    def _change_group(
        self, action: str, group_id: str, name: str | None = None, **fields: Any
    ) -> None:
        self._change("group-change", name, action=action, group=group_id, **fields)

    def _change(self, what: str, name: str | None, **fields: Any) -> dict[str, Any]:
        body = {"own": self._own, **fields, **({} if name is None else {"name": name})}
        return self._post(f"{PATH}/{what}", body, "", dict[str, Any])
