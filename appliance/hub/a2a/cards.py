"""Makes agent cards, and signs them with the member key.

A signature is a JWS (RFC 7515) over the card in canonical JSON (RFC 8785), as A2A 1.0 states in
section 8.4. A card has no empty values, because implementations differ in whether they sign them.
"""

import base64
from collections.abc import Callable
from typing import Any

import msgspec

from appliance.hub.a2a.settings import A2aAgentSettings, A2aSkillSettings
from appliance.hub.a2a.wire import (
    POST,
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    CardKey,
    CardKeys,
    CardSignature,
)
from appliance.mesh.canonical import canonical
from appliance.mesh.signing import Signer

KEYS_PATH = "/.well-known/jwks.json"
TEXT_MODES = ["text/plain", "application/json"]
BEARER = {"bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}}}
# Without a scope in the list, the requirement would be an empty value.
REQUIRED = [{"schemes": {"bearer": {"list": [POST]}}}]


class Cards:
    """Agent cards. `signer`: None without a member key. `url`: the appliance's address."""

    def __init__(self, url: Callable[[], str], version: str, signer: Signer | None) -> None:
        self._url, self._version, self._signer = url, version, signer

    def make(self, agent: A2aAgentSettings) -> AgentCard:
        """Return the agent's signed card."""
        url = self._url()
        card = AgentCard(
            agent.name, agent.description, [AgentInterface(f"{url}/a2a/{agent.name}")],
            self._version, AgentCapabilities(), BEARER, REQUIRED, TEXT_MODES, TEXT_MODES[:1],
            [_describe(skill) for skill in agent.skills],
        )  # fmt: skip
        if self._signer is None:
            return card
        return msgspec.structs.replace(card, signatures=[_sign(card, self._signer, url)])

    def keys(self) -> CardKeys:
        """Return the key that signs the cards, if there is one."""
        return CardKeys([] if self._signer is None else [_key_of(self._signer)])


def _describe(skill: A2aSkillSettings) -> AgentSkill:
    name, tags = skill.name or skill.id, list(skill.tags) or [skill.id]
    return AgentSkill(skill.id, name, skill.description, tags, list(skill.examples))


def _sign(card: AgentCard, signer: Signer, url: str) -> CardSignature:
    """Sign the card. Neither a request nor a hello between members can look like a JWS: they have
    line breaks."""
    header = {
        "alg": "EdDSA", "typ": "JOSE", "kid": signer.public_hex[:16], "jku": url + KEYS_PATH,
    }  # fmt: skip
    content: dict[str, Any] = msgspec.to_builtins(card)
    del content["signatures"]
    protected = _encode(canonical(header))
    signature = signer.sign(f"{protected}.{_encode(canonical(content))}".encode())
    return CardSignature(protected, _encode(signature))


def _key_of(signer: Signer) -> CardKey:
    public = signer.public_hex
    return CardKey(public[:16], _encode(bytes.fromhex(public)))


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
