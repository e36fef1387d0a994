"""Implements the network protocol that agents and their relay share: keys, envelopes, signed
requests. Pure.

    keys        Ed25519 keys with their encodings, and the X25519 keys derived from them
    envelope    messages between two agents: encrypted, then signed
    request     signatures for requests to a relay
    broadcast   messages from a relay's admins to all agents
    safety      fingerprints, and the safety numbers that two people compare
    names       agent names

An agent's network key is portable: the key moves with the agent. By contrast, the mesh member key
(`appliance/identity`) is bound to one host.
"""
