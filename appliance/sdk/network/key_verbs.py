"""A network agent's verbs for its own key: rotation, and recovery by mail."""

import threading
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from appliance.kernel.clock import HOUR_MS, Clock
from appliance.network.keys import AgentKey, recovery_text, rotation_text
from appliance.sdk.network.folder import AgentConfig, AgentFolder, NoNetworkAgent
from appliance.sdk.network.key_log import KeyLog
from appliance.sdk.network.relay_client import RelayClient, RelayRefused
from appliance.sdk.network.state import AgentState

ROTATED, FORMER_MS = "rotated_ms", HOUR_MS  # how long the former key opens messages


class KeyLogEnd(Struct, frozen=True, rename="camel"):
    """The pinned end of the relay's key log. `relayKey`: the key that signs the end. `problem`: why
    the log or a contact's key was refused last; "" if all is well."""

    number: int
    hash: str
    relay_key: str
    problem: str


class KeyVerbs:
    """Verbs for `NetworkAgent`, which has these parts."""

    name: str
    folder: AgentFolder
    relay: RelayClient
    state: AgentState
    config: AgentConfig
    key_log: KeyLog
    contacts: Callable[..., object]
    _unsigned: RelayClient
    _clock: Clock
    _closed: threading.Event

    def _client(self, name: str = "", key: AgentKey | None = None) -> RelayClient:
        config, pause = self.config, self._closed.wait
        return RelayClient(
            config.relay, self._clock, name, key, pause, plain_http=config.plain_http
        )

    def recover(self, email: str, code: str) -> str:
        """Confirm the code from `request_code`, and have the relay replace a lost key by this
        folder's key in one hour. Return when."""
        key = self.folder.key()
        self._unsigned.request("POST", "/verify/confirm", {"agentName": self.name, "code": code})
        body = {
            "publicKey": str(key.public), "ownerEmail": email,
            "proof": key.sign(recovery_text(self.name, key.public)),
        }  # fmt: skip
        path = f"/registry/agents/{self.name}/recover"
        return str(self._unsigned.request("POST", path, body)["effectiveAt"])

    def cancel_recovery(self) -> None:
        """Keep the present key although somebody with the owner's mail asked for another."""
        self.relay.request("DELETE", f"/registry/agents/{self.name}/recover")

    def rotate_key(self) -> str:
        """Replace the key by a new one, which the present one signs. Return the new public key.

        After a lost reply, call again. A program that runs with the former key takes the new one at
        the next heartbeat.
        """
        former, key = self.folder.key(), self.folder.next_key()
        text = rotation_text(self.name, former.public, key.public)
        body = {
            "publicKey": str(key.public), "signature": former.sign(text), "proof": key.sign(text),
        }  # fmt: skip
        try:
            self.relay.request("POST", f"/registry/agents/{self.name}/rotate-key", body)
        except RelayRefused:
            if not self._is_registered(key):  # may have been accepted before
                raise
        self.state.set_cursor(ROTATED, str(self._clock.now_ms()))
        self.folder.promote_next()
        self.relay.key = key
        return str(key.public)

    def read_key_log(self, *, accept: bool = False) -> KeyLogEnd:
        """Follow the relay's key log, and return its pinned end. `accept`: pin the log that the
        relay shows now, after its admins have said why it is not the one before."""
        if accept:
            self.key_log.accept()
        self.contacts()
        pin = self.key_log.pin
        return KeyLogEnd(pin.number, pin.hash, pin.relay_key, self.key_log.problem)

    def _other_keys(self) -> list[AgentKey]:
        """Return the keys with which senders may have sealed: the current one, which another
        process may have made, and the former one, which is deleted an hour after the rotation."""
        keys = [self.folder.key()]
        with suppress(NoNetworkAgent):
            keys.append(self.folder.former_key())
        return keys

    def _has_former_key(self) -> bool:
        """Return whether contacts may not know the present key yet."""
        return self._clock.now_ms() - int(self.state.cursor(ROTATED) or 0) < FORMER_MS

    def _is_registered(self, key: AgentKey) -> bool:
        try:
            self._client(self.name, key).request("GET", "/contacts")
        except RelayRefused:
            return False
        return True
