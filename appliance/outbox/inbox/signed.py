"""The texts a member signs for its broker, byte for byte. Pure.

a request   agentlip-broker-v1 ⏎ METHOD ⏎ path ⏎ timestamp ⏎ sha256 of the body, hexadecimal
a hello     agentlip-broker-link-v1 ⏎ mesh ⏎ member ⏎ timestamp
a rotation  agentlip-broker-rotate-v1 ⏎ mesh ⏎ old key ⏎ new key (signed by the new one)
"""

import hashlib


def request_text(method: str, path: str, stamp: str, body: bytes) -> bytes:
    digest = hashlib.sha256(body).hexdigest()
    return "\n".join(("agentlip-broker-v1", method, path, stamp, digest)).encode()


def hello_text(mesh: str, member: str, stamp: int) -> bytes:
    return f"agentlip-broker-link-v1\n{mesh}\n{member}\n{stamp}".encode()


def rotation_text(mesh: str, old: str, new: str) -> bytes:
    return f"agentlip-broker-rotate-v1\n{mesh}\n{old}\n{new}".encode()
