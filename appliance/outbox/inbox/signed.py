"""The texts a member signs for its broker's link and for a rotation, byte for byte. Pure.

a hello     agentlip-broker-link-v2 ⏎ broker id ⏎ mesh ⏎ member ⏎ nonce of the challenge
a rotation  agentlip-broker-rotate-v1 ⏎ mesh ⏎ old key ⏎ new key (signed by the new one)
"""


def hello_text(broker: str, mesh: str, member: str, nonce: str) -> bytes:
    return f"agentlip-broker-link-v2\n{broker}\n{mesh}\n{member}\n{nonce}".encode()


def rotation_text(mesh: str, old: str, new: str) -> bytes:
    return f"agentlip-broker-rotate-v1\n{mesh}\n{old}\n{new}".encode()
