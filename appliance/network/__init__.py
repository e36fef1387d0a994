"""The network protocol as agents and their relay share it: keys, envelopes, signed requests. Pure.

    keys        Ed25519 keys with their encodings, and the X25519 keys derived from them
    envelope    messages between two agents: encrypted, then signed
    request     signatures of requests to a relay
    broadcast   messages of a relay's admins to all agents
    safety      fingerprints, and the safety numbers that two people compare
    names       names of agents

The network key of an agent is portable: it goes where the agent goes. It is not the member key of
meshes (`appliance/identity`), which is bound to its host.
"""
