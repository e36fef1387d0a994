"""What `to` means: a topic, a member or a queue. Pure.

    #alerts  topic:alerts           a topic by its name
    29acba…(64 digits)  dm:29acba…  a member by the public key, whole
    queue:q1                        a queue by its id
    mailto:a@x.org,b@y.org          mail, for sends whose target is mail

A beginning of a key is refused: a send to it would never be delivered.
"""

import re

from appliance.kernel.errors import Invalid
from appliance.mesh.fingerprint import DestinationKind

MAILTO = "mailto:"
REF_CHARACTERS_MAX = 200
LOCAL_CHARACTERS_MAX = 64
DOMAIN_CHARACTERS_MAX = 253
# Plainer than mail allows: nothing that is quoted, and neither '%' nor '!', by which old servers
# pass mail on to others.
_LOCAL = r"[A-Za-z0-9_][A-Za-z0-9_+=~'-]*(\.[A-Za-z0-9_+=~'-]+)*"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"({_LOCAL})@({_LABEL}(?:\.{_LABEL})*)")
_KEY = re.compile(r"[0-9a-fA-F]{64}")
_REF = re.compile(r"[^\s\x00-\x1f\x7f]+")


class BadDestination(Invalid):
    code = "DESTINATION_UNRESOLVABLE"
    sentence = "that is no destination"
    advice = "'#topic', 'dm:' and a member's public key of 64 hexadecimal digits, or 'queue:ID'"


def parse(to: str) -> tuple[DestinationKind, str]:
    """Kind and reference, or BadDestination."""
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
    """The same for what is looked for among sends of all targets."""
    return ("queue", mail(to)) if to.startswith(MAILTO) else parse(to)


def topic(name: str) -> str:
    """A topic's name as it is addressed."""
    return _ref(name.removeprefix("#"))


def mail(to: str) -> str:
    """Addresses of mail as they are stored: each once, domains in lower case."""
    found: dict[str, None] = {}
    for address in to.removeprefix(MAILTO).split(","):
        found[mail_address(address.strip(" "))] = None
    return MAILTO + ",".join(found)


def mail_address(text: str) -> str:
    """One address, its domain in lower case; or BadDestination."""
    found = _ADDRESS.fullmatch(text)
    if found is None or len(found[1]) > LOCAL_CHARACTERS_MAX or len(text) > DOMAIN_CHARACTERS_MAX:
        raise BadDestination(
            "mail goes to addresses in plain ASCII",
            details={"field": "to"},
            hint="'mailto:ops@example.com'; several are separated by commas",
        )
    local, domain = text.split("@")
    return f"{local}@{domain.lower()}"


def mail_addresses(ref: str) -> list[str]:
    """Those in a stored reference."""
    return ref.removeprefix(MAILTO).split(",")


def shown(kind: str, ref: str) -> str:
    """What `parse`, or `mail`, would read."""
    if ref.startswith(MAILTO):
        return ref
    return f"#{ref}" if kind == "topic" else f"{kind}:{ref}"


def _key(text: str) -> str:
    if not _KEY.fullmatch(text):
        raise BadDestination(
            "a member is addressed by the whole public key, 64 hexadecimal digits",
            details={"field": "to"},
        )
    return text.lower()


def _ref(text: str) -> str:
    if len(text) > REF_CHARACTERS_MAX or not _REF.fullmatch(text):
        raise BadDestination(
            f"a name has 1 to {REF_CHARACTERS_MAX} characters and no spaces",
            details={"field": "to"},
        )
    return text
