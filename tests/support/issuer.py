"""A real OpenID Connect issuer on its own port: configuration, keys, and signed tokens."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tests.support.http_server import HttpRequest, Reply, http_server

RESOURCE = "https://agents.example.org/mcp"
KINDS: dict[str, tuple[Any, Any]] = {
    "RS256": (lambda: rsa.generate_private_key(65_537, 2048), jwt.algorithms.RSAAlgorithm),
    "ES256": (lambda: ec.generate_private_key(ec.SECP256R1()), jwt.algorithms.ECAlgorithm),
    "EdDSA": (ed25519.Ed25519PrivateKey.generate, jwt.algorithms.OKPAlgorithm),
}


class Issuer:
    """Its keys by id: the algorithm, and the private key."""

    def __init__(self) -> None:
        self.port = 0
        self.keys = {kind: (kind, make()) for kind, (make, _) in KINDS.items()}
        self.published = [self.public(key_id) for key_id in self.keys]
        self.configuration: dict[str, Any] = {}
        self.replies: dict[str, Reply | bytes] = {}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/realms/a"

    @property
    def settings(self) -> str:
        return f"""
[oidc]
issuer = "{self.url}"
resource = "{RESOURCE}"
audiences = ["agentlip"]
name_claim = "preferred_username"

[[oidc.grants]]
value = "agents"
scopes = ["hub:read", "hub:post"]
"""

    def add(self, key_id: str, kind: str = "RS256") -> None:
        self.keys[key_id] = (kind, KINDS[kind][0]())

    def public(self, key_id: str) -> dict[str, Any]:
        kind, key = self.keys[key_id]
        jwk: dict[str, Any] = json.loads(KINDS[kind][1].to_jwk(key.public_key()))
        return jwk | {"kid": key_id, "use": "sig"}

    def claims(self, **more: Any) -> dict[str, Any]:
        now = int(time.time())
        claims = {
            "iss": self.url, "aud": RESOURCE, "sub": "248289761001", "iat": now, "exp": now + 300,
            "preferred_username": "anna", "scope": "openid agents",
        }  # fmt: skip
        return {name: value for name, value in (claims | more).items() if value is not None}

    def token(self, key_id: str = "RS256", headers: Any = None, **more: Any) -> str:
        kind, key = self.keys[key_id]
        return jwt.encode(self.claims(**more), key, kind, {"kid": key_id, **(headers or {})})

    def reply(self, request: HttpRequest) -> Reply | bytes:
        self.asked.append(request.path)
        if request.path in self.replies:
            return self.replies[request.path]
        bodies = {
            "/realms/a/.well-known/openid-configuration": {
                "issuer": self.url, "jwks_uri": self.url + "/keys", **self.configuration,
            },
            "/realms/a/keys": {"keys": self.published},
        }  # fmt: skip
        if request.path not in bodies:
            return 404, {}, b""
        return 200, {"Content-Type": "application/json"}, json.dumps(bodies[request.path]).encode()


@contextmanager
def issuer() -> Iterator[Issuer]:
    served = Issuer()
    with http_server(served.reply) as server:
        served.port = server.port
        yield served
