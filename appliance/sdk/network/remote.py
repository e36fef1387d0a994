"""Uses a network agent in an appliance, which may run on another machine.

    with RemoteAgent(url="https://hub.example.org", token=token, own="anna") as anna:
        for request in anna.pending_requests():
            anna.accept_contact(request["from"])

Methods have the names and results of `NetworkAgent`. To send, use the outbox: `network:NAME`.
"""

from pathlib import Path
from typing import Any

from appliance.sdk.calls import HubCalls, T
from appliance.sdk.http import HubConnections, Retry
from appliance.sdk.network.broadcasts import KeptBroadcast
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

    def _key(self, name: str) -> dict[str, Any]:
        path = f"{PATH}/contacts/{path_segment(name)}"
        return self._get(path, dict[str, Any], None, own=self._own)

    def _read(self, what: str, kind: type[T], field: str | None = None, **query: Any) -> T:
        return self._get(f"{PATH}/{what}", kind, field or what, own=self._own, **query)

    def _change(self, what: str, name: str, **fields: Any) -> None:
        body = {"name": name, "own": self._own, **fields}
        self._post(f"{PATH}/{what}", body, "", dict[str, Any])
