"""Parses `to`: a topic, a member or a queue. Pure.

    #alerts  topic:alerts           a topic by its name
    29acba…(64 digits)  dm:29acba…  a member by the whole public key
    queue:q1                        a queue by its id
    mailto:a@x.org,b@y.org          mail, for sends with the target mail
    network:bert                    an agent, for sends with the target network

A prefix of a key is refused: a send to it would never be delivered.
"""

import re

from appliance.kernel.errors import Invalid
from appliance.mesh.fingerprint import DestinationKind

MAILTO, NETWORK = "mailto:", "network:"
REF_CHARACTERS_MAX = 200
LOCAL_CHARACTERS_MAX = 64
DOMAIN_CHARACTERS_MAX = 253
# Stricter than RFC 5321: nothing quoted, and neither '%' nor '!', which some servers relay by.
_LOCAL = r"[A-Za-z0-9_][A-Za-z0-9_+=~'-]*(\.[A-Za-z0-9_+=~'-]+)*"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"({_LOCAL})@({_LABEL}(?:\.{_LABEL})*)")
_KEY = re.compile(r"[0-9a-fA-F]{64}")
_REF = re.compile(r"[^\s\x00-\x1f\x7f]+")


class BadDestination(Invalid):
    code = "DESTINATION_UNRESOLVABLE"
    default_message = "invalid destination"
    default_hint = (
        "use '#TOPIC', 'dm:KEY' with a public key in 64 hexadecimal digits, or 'queue:ID'"
    )


def parse(to: str) -> tuple[DestinationKind, str]:
    """Return kind and reference. Raises BadDestination."""
    if to.startswith("#"):
        return "topic", _ref(to[1:])
    kind, colon, ref = to.partition(":")
    if not colon:
        return "dm", _key(to)
    if kind == "topic":
        return "topic", _ref(ref.removeprefix("#"))
    if kind == "queue":
        return "queue", _ref(ref)
    if kind == "dm":
        return "dm", _key(ref)
    raise BadDestination(details={"field": "to"})


def parse_stored(to: str) -> tuple[DestinationKind, str]:
    """Parse like `parse`, and accept other targets' destinations: for filters over all sends."""
    if to.startswith(NETWORK):
        return "queue", to
    return ("queue", mail(to)) if to.startswith(MAILTO) else parse(to)


def topic(name: str) -> str:
    """Return a topic's name without the leading #, or raise BadDestination."""
    return _ref(name.removeprefix("#"))


def mail(to: str) -> str:
    """Mail addresses in stored form: without duplicates, domains in lower case."""
    addresses: dict[str, None] = {}
    for address in to.removeprefix(MAILTO).split(","):
        addresses[mail_address(address.strip(" "))] = None
    return MAILTO + ",".join(addresses)


def mail_address(text: str) -> str:
    """Return an address with its domain in lower case. Raises BadDestination."""
    match = _ADDRESS.fullmatch(text)
    if match is None or len(match[1]) > LOCAL_CHARACTERS_MAX or len(text) > DOMAIN_CHARACTERS_MAX:
        raise BadDestination(
            "invalid mail address: only plain ASCII addresses are supported",
            details={"field": "to"},
            hint="example: 'mailto:ops@example.com'; separate several addresses with commas",
        )
    local, domain = text.split("@")
    return f"{local}@{domain.lower()}"


def mail_addresses(ref: str) -> list[str]:
    """Return the addresses in a stored reference."""
    return ref.removeprefix(MAILTO).split(",")


def to_text(kind: str, ref: str) -> str:
    """Return the text that `parse` and `mail` read."""
    if ref.startswith((MAILTO, NETWORK)):
        return ref
    return f"#{ref}" if kind == "topic" else f"{kind}:{ref}"


def _key(text: str) -> str:
    if not _KEY.fullmatch(text):
        raise BadDestination(
            "a member's address is the whole public key, 64 hexadecimal digits",
            details={"field": "to"},
        )
    return text.lower()


def _ref(text: str) -> str:
    if len(text) > REF_CHARACTERS_MAX or not _REF.fullmatch(text):
        raise BadDestination(
            f"a destination name has 1 to {REF_CHARACTERS_MAX} characters and no spaces",
            details={"field": "to"},
        )
    return text
