"""Seals and opens envelopes: a message from one agent to another, encrypted and then signed.
Pure.

    {"version", "type", "messageId", "sender", "recipient", "timestamp",
     "payload": {"ciphertext", "nonce"}, "signature"}

A message to a group is one envelope for each member, with the type `group` and the field `groupId`.

The cipher is AES-256-GCM with a key that both agents derive from their keys and names. The
additional data is the messageId in version 2.0; from 2.1 on, the canonical JSON for all fields
above except `payload` and `signature`. The signature covers the canonical JSON (RFC 8785) for all
fields except `signature`, including fields that this version does not know.

The receiver checks in this order: recipient, sender, structure, version, clock, signature,
decryption.
"""

import os
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Meta, Struct

from appliance.kernel.clock import iso
from appliance.kernel.errors import Invalid
from appliance.mesh.canonical import NotCanonical, canonical
from appliance.network.encoding import is_current, of_base64, to_base64
from appliance.network.keys import AgentKey, AgentPublicKey

VERSION, FORMER_VERSION = "2.1", "2.0"
ENVELOPE_BYTES_MAX = 262_144
SALT = b"cc4me-e2e-v1"
NONCE_BYTES = 12
AGAIN_SECONDS = 60.0  # a refusal that a heartbeat or a clock can end; the sender seals again then
TYPES = Literal["direct", "receipt", "group"]
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(\.[0-9]{1,4})?")
_UUID4 = "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"


class EnvelopeRefused(Invalid):
    """A refused envelope. `code` is the reason; an endpoint answers 400, with Retry-After if a
    later attempt may succeed."""

    code = "MESSAGE_REFUSED"
    default_message = "the envelope was refused"
    default_hint = "check both agents' names and clocks, and that each has the other's current key"


class NotTheRecipient(EnvelopeRefused):
    code = "NOT_THE_RECIPIENT"
    default_message = "the envelope is for another agent"


class SenderNotAContact(EnvelopeRefused):
    code = "SENDER_NOT_A_CONTACT"
    default_message = "the sender is not the recipient's contact"


class MalformedEnvelope(EnvelopeRefused):
    code = "MALFORMED_ENVELOPE"
    default_message = "the envelope does not have the required fields"


class UnsupportedEnvelope(EnvelopeRefused):
    code = "UNSUPPORTED_ENVELOPE"
    default_message = "the envelope's major version is not 2"


class EnvelopeNotCurrent(EnvelopeRefused):
    code = "ENVELOPE_NOT_CURRENT"
    default_message = "the envelope's timestamp is more than 5 minutes from the recipient's clock"
    default_hint = "set the clock, then encrypt and sign the message again"


class EnvelopeNotSigned(EnvelopeRefused):
    code = "ENVELOPE_NOT_SIGNED"
    default_message = "the signature was not made by the sender's key over these fields"


class NotDecrypted(EnvelopeRefused):
    code = "NOT_DECRYPTED"
    default_message = "the payload cannot be decrypted"


class EncryptedPayload(Struct, frozen=True):
    ciphertext: str
    nonce: str


class SealedEnvelope(Struct, frozen=True, rename="camel"):
    """The envelope's structure. Fields without a name here are signed too, and otherwise
    ignored."""

    version: str
    type: TYPES
    message_id: Annotated[str, Meta(pattern=_UUID4)]
    sender: str
    recipient: str
    timestamp: str
    payload: EncryptedPayload
    signature: str
    group_id: Annotated[str, Meta(pattern=_UUID4)] | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        """Check that exactly the messages to groups name one."""
        if (self.type == "group") is (self.group_id is msgspec.UNSET):
            raise ValueError("groupId belongs to the type group")


class OpenedMessage(Struct, frozen=True):
    version: str
    type: TYPES
    message_id: str
    sender: str
    timestamp: str
    payload: dict[str, Any]
    sender_key: str = ""  # the key that verified the signature
    group_id: str | None = None


class Correspondence:
    """An agent's key with one contact's key; derives the shared secret once."""

    def __init__(self, own: AgentKey, name: str, peer: AgentPublicKey, peer_name: str) -> None:
        """Derive the shared secret. Raises BadKey."""
        self._own, self.name = own, name
        self.peer, self.peer_name = peer, peer_name
        self._cipher = AESGCM(message_key(own.shared_secret(peer), name, peer_name))

    def seal(
        self,
        payload: dict[str, Any],
        message_id: str,
        now_ms: int,
        *,
        version: str = VERSION,
        type: TYPES = "direct",  # noqa: A002
        nonce: bytes | None = None,
        group_id: str | None = None,
    ) -> dict[str, Any]:
        """Return an envelope for the contact. `nonce` is for tests: never use a nonce twice.

        Raises EnvelopeRefused if the payload has no JSON form, or a field is malformed.
        """
        fields: dict[str, Any] = {
            "version": version, "type": type, "messageId": message_id,
            "sender": self.name, "recipient": self.peer_name, "timestamp": iso(now_ms),
        }  # fmt: skip
        if group_id is not None:
            fields["groupId"] = group_id
        nonce = nonce or os.urandom(NONCE_BYTES)
        try:
            plaintext = msgspec.json.encode(payload)
        except (TypeError, ValueError, msgspec.MsgspecError):
            raise MalformedEnvelope("the payload has no JSON form") from None
        ciphertext = self._cipher.encrypt(nonce, plaintext, additional_data(fields))
        fields["payload"] = {"ciphertext": to_base64(ciphertext), "nonce": to_base64(nonce)}
        fields["signature"] = self._own.sign(signed_text(fields))
        return fields

    def open(self, fields: dict[str, Any], envelope: SealedEnvelope) -> dict[str, Any]:
        """Check the signature, then decrypt."""
        if not self.peer.is_signed(signed_text(fields), envelope.signature):
            raise EnvelopeNotSigned(retry_after=AGAIN_SECONDS)
        try:
            nonce, ciphertext = (
                of_base64(text) for text in (envelope.payload.nonce, envelope.payload.ciphertext)
            )
            if len(nonce) != NONCE_BYTES:
                raise ValueError
            plaintext = self._cipher.decrypt(nonce, ciphertext, additional_data(fields))
            payload = msgspec.json.decode(plaintext)
        except (InvalidTag, ValueError, RecursionError):
            raise NotDecrypted(retry_after=AGAIN_SECONDS) from None
        if not isinstance(payload, dict):
            raise NotDecrypted("the decrypted payload is not a JSON object")
        return payload


def open_envelope(
    body: bytes, name: str, contact: Callable[[str], Correspondence | None], now_ms: int
) -> OpenedMessage:
    """Verify and decrypt an envelope that another agent sent to the agent `name`. Raises
    EnvelopeRefused.

    `contact` returns None for a sender that is not a contact. The caller drops messages with a
    (sender, message_id) pair seen before.
    """
    fields = _decode(body)
    if fields.get("recipient") != name:
        raise NotTheRecipient
    sender = fields.get("sender")
    correspondence = contact(sender) if isinstance(sender, str) else None
    if correspondence is None:
        raise SenderNotAContact
    try:
        envelope = msgspec.convert(fields, SealedEnvelope)
    except msgspec.ValidationError as error:
        raise MalformedEnvelope(f"the envelope is malformed: {error}") from None
    check_version(envelope.version)
    try:
        if not is_current(envelope.timestamp, now_ms):
            raise EnvelopeNotCurrent(retry_after=AGAIN_SECONDS)
    except (ValueError, OverflowError):
        raise MalformedEnvelope("the timestamp is not ISO 8601 in UTC") from None
    payload = correspondence.open(fields, envelope)
    return OpenedMessage(
        envelope.version, envelope.type, envelope.message_id, envelope.sender, envelope.timestamp,
        payload, str(correspondence.peer), envelope.group_id or None,
    )  # fmt: skip


def _decode(body: bytes) -> dict[str, Any]:
    if len(body) > ENVELOPE_BYTES_MAX:
        raise MalformedEnvelope(f"the envelope has more than {ENVELOPE_BYTES_MAX:,} bytes")
    try:
        fields = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        raise MalformedEnvelope("the envelope is not JSON") from None
    if not isinstance(fields, dict):
        raise MalformedEnvelope
    return fields


def check_version(text: str) -> tuple[int, int]:
    """Return the major and minor number. Raises EnvelopeRefused."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise MalformedEnvelope("the version is not like 2.1")
    if int(match[1]) != 2:
        raise UnsupportedEnvelope
    return 2, int(match[2])


def message_key(secret: bytes, name: str, peer_name: str) -> bytes:
    info = ":".join(sorted((name, peer_name))).encode()
    return HKDF(SHA256(), 32, SALT, info).derive(secret)


def additional_data(fields: dict[str, Any]) -> bytes:
    if check_version(fields["version"])[1] == 0:
        return bytes(fields["messageId"].encode())
    names = {"version", "type", "sender", "recipient", "messageId", "timestamp", "groupId"}
    return _canonical({name: fields[name] for name in names & fields.keys()})


def signed_text(fields: dict[str, Any]) -> bytes:
    """Return the text that an envelope's signature covers. Raises MalformedEnvelope."""
    try:
        return _canonical({name: fields[name] for name in fields if name != "signature"})
    except NotCanonical as error:
        raise MalformedEnvelope(error.message) from None


def _canonical(fields: dict[str, Any]) -> bytes:
    """Return the result of `canonical`, in a tenth of the time for plain ASCII strings. Most
    envelopes consist of plain strings, which have one JSON spelling and one order."""
    if all(map(_is_text, fields.values())):
        text = _encode_sorted(fields)
        if text.isascii() and b"\\" not in text:
            return text
    return canonical(fields)


def _is_text(value: Any) -> bool:
    return type(value) is str or (type(value) is dict and all(map(_is_text, value.values())))
