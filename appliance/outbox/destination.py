"""What `to` means: a topic, a member or a queue. Pure.

    #alerts  topic:alerts           a topic by its name
    29acba…(64 digits)  dm:29acba…  a member by the public key, whole
    queue:q1                        a queue by its id

A beginning of a key is refused: a send to it would never be delivered.
"""

import re

from appliance.kernel.errors import Invalid
from appliance.kernel.fingerprint import DestinationKind

REF_CHARACTERS_MAX = 200
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


def topic(name: str) -> str:
    """A topic's name as it is addressed."""
    return _ref(name.removeprefix("#"))


def shown(kind: str, ref: str) -> str:
    """What `parse` would read."""
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
