"""A real OpenID provider in its own process, where the test answers the sign-in form."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx

from tests.support.until import until


class Provider:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def settings(self, url: str, secret: Path | None = None) -> str:
        """[oidc] for an appliance at `url`, where `ops` are admins and one domain reads."""
        return f"""
[oidc]
issuer = "{self.url}"
client_id = "agentlip"
url = "{url}"
{f'client_secret_file = "{secret}"' if secret else ""}
[[oidc.people]]
value = "boss@example.org"
scopes = ["admin"]

[[oidc.people]]
value = "@example.com"
scopes = ["hub:read", "hub:post"]
"""

    def add(self, sub: str, **claims: Any) -> None:
        assert httpx.put(f"{self.url}/users/{quote(sub)}", json=claims).status_code == 204

    def answer(self, location: str, sub: str) -> Mapping[str, str]:
        """Sign in at the provider; return the parameters with which the browser is sent back."""
        reply = httpx.post(location, data={"sub": sub})
        assert reply.status_code == 302, reply.text
        back = urlsplit(reply.headers["location"])
        return {name: values[0] for name, values in parse_qs(back.query).items()}


@contextmanager
def provider(port: int) -> Iterator[Provider]:
    words = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "-p", str(port)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    served = Provider(port)

    def answers() -> bool:
        try:
            return httpx.get(f"{served.url}/.well-known/openid-configuration").status_code == 200
        except httpx.TransportError:
            assert process.poll() is None, "the provider ended"
            return False

    try:
        until(answers, 30, "the provider answers")
        yield served
    finally:
        process.terminate()
        process.wait(10)
