"""An agent's contacts with their pinned keys: seals and opens envelopes.

Contacts and admin keys are cached, so the agent works while the relay is down. A damaged cache file
is made again from the relay.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from appliance.kernel.clock import Clock
from appliance.kernel.errors import Invalid, Missing, Unavailable
from appliance.kernel.whole_file import write_whole
from appliance.network.direct import DirectAddresses
from appliance.network.envelope import (
    ENVELOPE_BYTES_MAX,
    FORMER_VERSION,
    TYPES,
    VERSION,
    Correspondence,
    EnvelopeNotSigned,
    MalformedEnvelope,
    NotDecrypted,
    OpenedMessage,
    SenderNotAContact,
    check_version,
    open_envelope,
)
from appliance.network.keys import AgentKey, AgentPublicKey, BadKey
from appliance.network.names import is_agent_name
from appliance.sdk.network.folder import NoNetworkAgent
from appliance.sdk.network.key_log import KeyLog, KeyLogRefused
from appliance.sdk.network.pins import KeyChanged, KeyPin, KeyPins, pin_after
from appliance.sdk.network.relay_client import (
    LOOPBACK,
    RelayClient,
    RelayRefused,
    RelayUnreachable,
)

REFRESH_MS = 10_000  # between two refreshes that others' messages cause


class NotAContact(Missing):
    code = "NOT_A_CONTACT"
    default_message = "this agent is not a contact"
    default_hint = "agentlip network request NAME; then the other agent has to accept"


class ContactsNotCurrent(Unavailable):
    """The sender may be a new contact, or may have a new key: it should try again."""

    code = "CONTACTS_NOT_CURRENT"
    default_message = "the recipient's contacts can't be read from its relay now"
    default_hint = "send the message again in some seconds"


class BadAgentEndpoint(Invalid):
    code = "BAD_AGENT_ENDPOINT"
    default_message = "the agent's endpoint is not an https URL"
    default_hint = "the agent has to register its endpoint as https://NAME/network/inbox"


class CachedContact(Struct, frozen=True, rename="camel"):
    """A row from GET /contacts."""

    agent: str
    public_key: str
    endpoint: str | None = None
    online: bool | None = None
    last_seen: str | None = None
    version: str = FORMER_VERSION
    former_key: str | None = None
    rotation: str | None = None
    recovery_in_progress: bool = False
    direct: DirectAddresses | None = None

    def newest_version(self) -> str:
        """Return the envelope version to send."""
        try:
            return VERSION if check_version(self.version)[1] else FORMER_VERSION
        except MalformedEnvelope:
            return FORMER_VERSION


class AgentCache(Struct):
    contacts: dict[str, CachedContact] = {}
    admins: dict[str, str] = {}


class Peers:
    """`other_keys` returns own keys that a sender may have before it has read the current one.
    `on_pin` is called with the pin before (None: a new contact) and after each change,
    `on_admin` with the name and key of an admin that the relay did not show before."""

    def __init__(
        self,
        relay: RelayClient,
        pins: KeyPins,
        file: Path,
        clock: Clock,
        on_pin: Callable[[KeyPin | None, KeyPin], None],
        on_admin: Callable[[str, str], None],
        other_keys: Callable[[], list[AgentKey]],
        key_log: KeyLog,
        *,
        loopback: bool = False,
    ) -> None:
        """`loopback` also allows endpoints on this machine, without TLS, for tests."""
        self._relay, self._pins = relay, pins
        self._file, self._clock, self._on_pin, self._loopback = file, clock, on_pin, loopback
        self._on_admin, self._other_keys = on_admin, other_keys
        self._key_log = key_log
        self._unlogged: frozenset[str] = frozenset()  # contacts whose keys differ from the log
        self._cache = _read(file)
        self._ciphers: dict[tuple[AgentPublicKey, str, str], Correspondence] = {}
        self._refreshed = float("-inf")

    @property
    def contacts(self) -> dict[str, CachedContact]:
        return self._cache.contacts

    def admin_keys(self) -> dict[str, AgentPublicKey]:
        return {name: AgentPublicKey.of(key) for name, key in self._cache.admins.items()}

    def refresh(self) -> None:
        """Read contacts and admins from the relay, and compare their keys with its key log and
        the pins. A contact without a pin, whose key is not the log's, is left out. Raises
        KeyLogRefused."""
        self._ciphers = {}  # former contacts' and keys' rows are not needed any more
        shown: dict[str, CachedContact] = {}

        def read_keys() -> dict[str, str]:
            shown.clear()
            shown.update(self._read_contacts())
            return {name: contact.public_key for name, contact in shown.items()}

        self._unlogged = self._key_log.check(read_keys)
        admins = self._relay.request("GET", "/admin/keys")
        pins, contacts = self._pins.all(), {}
        for name, contact in shown.items():
            if name in pins or name not in self._unlogged:
                contacts[name] = contact
                self._follow(pins.get(name), contact)
        keys = {str(row.get("agent")): str(row.get("adminPublicKey")) for row in admins}
        former = self._cache.admins
        self._keep(contacts, {name: key for name, key in keys.items() if _is_key(key)})
        for name, key in self._cache.admins.items() if former else ():
            if former.get(name) != key:
                self._on_admin(name, key)

    def _read_contacts(self) -> dict[str, CachedContact]:
        """Return the contacts that the relay shows, without revoked ones."""
        revoked = self._pins.revoked_agents()
        contacts = map(_convert, self._relay.request("GET", "/contacts"))
        return {row.agent: row for row in contacts if row is not None and row.agent not in revoked}

    def revoke(self, name: str) -> None:
        """Remove an agent that an admin has revoked, also if the relay goes on to list it."""
        self._pins.revoke(name)
        others = {each: row for each, row in self.contacts.items() if each != name}
        self._keep(others, self._cache.admins)

    def pin_first(self, name: str, key: str) -> None:
        """Pin the key that a person was shown, unless a key is pinned for this agent."""
        if self._pins.get(name) is None:
            self._pins.put(KeyPin(name, key))
            self._on_pin(None, KeyPin(name, key))

    def contact(self, name: str) -> CachedContact:
        """Return a contact. Raises NotAContact and KeyLogRefused, after the relay was queried."""
        if name not in self.contacts:
            self.refresh()
        if name not in self.contacts and name in self._unlogged:
            raise KeyLogRefused("the agent's key is not the one in the relay's key log")
        if name not in self.contacts:
            raise NotAContact(details={"name": name})
        return self.contacts[name]

    def check(self, name: str) -> tuple[CachedContact, KeyPin]:
        """Return a contact to which messages may be sent. Raises NotAContact, KeyChanged."""
        contact = self.contact(name)
        pin = self._pin_of(contact)
        if pin.offered is not None:
            raise KeyChanged(details={"agent": name})
        return contact, pin

    def direct_addresses(self, name: str) -> tuple[str, ...]:
        """Return a contact's addresses in the LAN that the pinned key has signed."""
        contact = self.contacts.get(name)
        if contact is None or contact.direct is None:
            return ()
        key = AgentPublicKey.of(self._pin_of(contact).key)
        return contact.direct.addresses if contact.direct.is_signed(name, key) else ()

    def seal(
        self,
        name: str,
        payload: dict[str, Any],
        message_id: str,
        kind: TYPES = "direct",
        endpoint: str | None = None,
        group_id: str | None = None,
    ) -> tuple[str, bytes]:
        """Return a contact's endpoint (the given one if there is one), and an envelope for it.
        Raises NotAContact, KeyChanged, BadAgentEndpoint, MalformedEnvelope."""
        contact, pin = self.check(name)
        endpoint = endpoint or contact.endpoint or ""
        check_endpoint(endpoint, self._loopback)
        version = contact.newest_version()
        fields = self._cipher(name, pin.key).seal(
            payload, message_id, self._clock.now_ms(), version=version, type=kind,
            group_id=group_id,
        )  # fmt: skip
        body = msgspec.json.encode(fields)
        if len(body) > ENVELOPE_BYTES_MAX:
            raise MalformedEnvelope(f"the message needs more than {ENVELOPE_BYTES_MAX:,} bytes")
        return endpoint, body

    def open(self, body: bytes) -> OpenedMessage:
        """Verify and decrypt an envelope from another agent. For a sender or a key that is not
        known, the contacts are refreshed once, unless an admin announced that the sender is
        revoked. Raises EnvelopeRefused and ContactsNotCurrent."""
        try:
            return self._open(body)
        except (SenderNotAContact, EnvelopeNotSigned):
            if self._pins.is_revoked(str(msgspec.json.decode(body).get("sender"))):
                raise  # for good: the relay is not needed
            if self._clock.monotonic() - self._refreshed < REFRESH_MS / 1000:
                raise ContactsNotCurrent(retry_after=REFRESH_MS / 1000) from None
            self._refreshed = self._clock.monotonic()
            try:
                self.refresh()
            except (RelayRefused, RelayUnreachable, KeyLogRefused):
                raise ContactsNotCurrent(retry_after=REFRESH_MS / 1000) from None
            return self._open(body)

    def _keep(self, contacts: dict[str, CachedContact], admins: dict[str, str]) -> None:
        self._cache = AgentCache(contacts, admins)
        write_whole(self._file, msgspec.json.encode(self._cache))

    def _open(self, body: bytes, own: AgentKey | None = None) -> OpenedMessage:
        contact = partial(self._correspondence, own=own)
        try:
            return open_envelope(body, self._relay.name, contact, self._clock.now_ms())
        except NotDecrypted:
            for other in () if own is not None else self._other_keys():
                with suppress(NotDecrypted):
                    return self._open(body, other)
            raise

    def _correspondence(self, name: str, own: AgentKey | None) -> Correspondence | None:
        contact = self.contacts.get(name)
        return None if contact is None else self._cipher(name, self._pin_of(contact).key, own)

    def _cipher(self, name: str, key: str, own: AgentKey | None = None) -> Correspondence:
        """Return the cipher with their shared secret, which is derived once for each pair of
        keys."""
        own = own or self._relay.key
        if own is None:
            raise NoNetworkAgent
        cipher = self._ciphers.get((own.public, name, key))
        if cipher is None:
            cipher = Correspondence(own, self._relay.name, AgentPublicKey.of(key), name)
            self._ciphers[own.public, name, key] = cipher
        return cipher

    def _pin_of(self, contact: CachedContact) -> KeyPin:
        return self._pins.get(contact.agent) or self._follow(None, contact)

    def _follow(self, pin: KeyPin | None, contact: CachedContact) -> KeyPin:
        after = pin_after(
            pin, contact.agent, contact.public_key, contact.former_key, contact.rotation
        )
        if after != pin:
            self._pins.put(after)
            self._on_pin(pin, after)
        return after


def check_endpoint(url: str, loopback: bool = False) -> None:
    """Check an endpoint. Raises BadAgentEndpoint."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise BadAgentEndpoint from None
    local = loopback and parts.scheme == "http" and host in LOOPBACK
    if not host or parts.username is not None or (parts.scheme != "https" and not local):
        raise BadAgentEndpoint


def _convert(row: Any) -> CachedContact | None:
    """Return a contact; None for a row that no agent in this protocol can have."""
    try:
        contact = msgspec.convert(row, CachedContact)
    except msgspec.ValidationError:
        return None
    return contact if is_agent_name(contact.agent) and _is_key(contact.public_key) else None


def _is_key(text: str) -> bool:
    try:
        AgentPublicKey.of(text)
    except BadKey:
        return False
    return True


def _read(file: Path) -> AgentCache:
    """Return the cache; an empty one if the file is missing or damaged."""
    try:
        cache = msgspec.json.decode(file.read_bytes(), type=AgentCache)
    except (OSError, ValueError):
        return AgentCache()
    cache.admins = {name: key for name, key in cache.admins.items() if _is_key(key)}
    return cache
