"""A network agent's verbs for contacts, requests for contact, and contacts' keys."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError
from appliance.network.keys import AgentKey, AgentPublicKey
from appliance.network.names import check_agent_name
from appliance.network.safety import fingerprint, safety_number
from appliance.sdk.network.folder import AgentFolder
from appliance.sdk.network.peers import CachedContact, NotAContact, Peers
from appliance.sdk.network.pins import KeyChanged, KeyPin, KeyPins
from appliance.sdk.network.relay_client import RelayClient, RelayRefused, is_final
from appliance.sdk.network.requests import ContactRequest, ContactRequests

DENIED_MAX = 20  # blocked agents' requests that one heartbeat denies
ACCEPT, DENY, BLOCK = "accept", "deny", "block"


class ContactVerbs:
    """Verbs for `NetworkAgent`, which has these parts."""

    folder: AgentFolder
    relay: RelayClient
    peers: Peers
    requests: ContactRequests
    _pins: KeyPins
    _clock: Clock

    @property
    def public_key(self) -> str:
        return str(self._key.public)

    @property
    def _key(self) -> AgentKey:
        return self.relay.key or self.folder.key()

    def contacts(self) -> list[CachedContact]:
        """Return the contacts from the relay; while it is down, the last known contacts. Raises
        RelayRefused if this agent was revoked."""
        try:
            self.peers.refresh()
        except ApplianceError as error:
            if is_final(error):
                raise
        return list(self.peers.contacts.values())

    def pending_requests(self) -> list[dict[str, Any]]:
        """Return requests that wait for an answer: `from`, `greeting`, `requesterEmail`,
        `publicKey`."""
        rows: list[dict[str, Any]] = self.relay.request("GET", "/contacts/pending")
        return rows

    def request_contact(self, name: str, greeting: str = "") -> None:
        body = {"to": check_agent_name(name), "greeting": greeting}
        self.requests.unblock(name)
        self.relay.request("POST", "/contacts/request", body)

    def accept_contact(self, name: str) -> None:
        self.relay.request("POST", f"/contacts/{check_agent_name(name)}/accept")
        self.requests.forget(name)
        self.peers.refresh()

    def deny_contact(self, name: str) -> None:
        self.relay.request("POST", f"/contacts/{check_agent_name(name)}/deny")
        self.requests.forget(name)

    def block_contact(self, name: str) -> None:
        """Deny a request if there is one, and each later one by this agent, until
        `request_contact` names it."""
        self.requests.block(check_agent_name(name))
        try:
            self.deny_contact(name)
        except RelayRefused as error:
            if error.details.get("status") != 404:
                raise

    def answer_requests(self, requests: Iterable[ContactRequest], answer: str) -> int:
        """Carry out a person's answer to these requests: accept, deny or block. Skip requests that
        the relay no longer lists, for example after the answer was carried out. A contact gets
        the key that the person was shown, whatever the relay shows later. Return how many."""
        self.refresh_requests()
        waiting = self.requests.waiting()
        current = [request for request in requests if request in waiting]
        for request in current:
            if answer == ACCEPT:
                self.peers.pin_first(request.agent, request.public_key)
            ANSWERS[answer](self, request.agent)
        return len(current)

    def refresh_requests(self) -> None:
        """Read the waiting requests from the relay, and deny blocked agents' requests."""
        blocked = self.requests.sync(self.pending_requests(), self._clock.now_ms())
        for name in blocked[:DENIED_MAX]:
            with suppress(RelayRefused):
                self.deny_contact(name)

    def remove_contact(self, name: str) -> None:
        """End the contact, and remove the contact's key and endpoint from this machine."""
        self.relay.request("DELETE", f"/contacts/{check_agent_name(name)}")
        self.peers.refresh()
        self._pins.remove(name)

    def pins(self) -> list[KeyPin]:
        return list(self._pins.all().values())

    def safety_number(self, name: str) -> str:
        """Return 60 digits for the key in the relay, which both owners compare."""
        pin = self._pin(name)
        return self.safety_number_with(pin.offered or pin.key)

    def safety_number_with(self, key: str) -> str:
        """Return the safety number for another agent's key."""
        return safety_number(self._key.public, AgentPublicKey.of(key))

    def confirm_key(self, name: str) -> None:
        """Note that a person compared the safety number. Raises KeyChanged."""
        pin = self._pin(name)
        if pin.offered is not None:
            raise KeyChanged(details={"agent": name})
        self._pins.put(KeyPin(name, pin.key, verified=True))

    def accept_key(self, name: str, shown: str) -> None:
        """Accept the changed key with this fingerprint. Raises KeyChanged for another
        fingerprint."""
        pin = self._pin(name)
        if pin.offered is None or fingerprint(AgentPublicKey.of(pin.offered)) != shown:
            raise KeyChanged(details={"agent": name})
        self._pins.put(KeyPin(name, pin.offered))

    def _pin(self, name: str) -> KeyPin:
        pin = self._pins.get(name)
        if pin is None:
            raise NotAContact(details={"name": name})
        return pin


ANSWERS = {
    ACCEPT: ContactVerbs.accept_contact,
    DENY: ContactVerbs.deny_contact,
    BLOCK: ContactVerbs.block_contact,
}
