"""Holds a network agent's modules, without an appliance. Needs the extra `agentlip[network]`.

agent, aio      what a program uses: contacts, messages, keys
endpoint        receives messages, as a WSGI or ASGI application
relay_client    signed requests to a relay
admin           a relay admin's decisions
folder          an agent's files: name, relay, key
state           the file with what an agent has to keep
pins            contacts' keys, as a person accepted them
peers           contacts, and envelopes to and from them
outgoing        messages that wait for their recipient, and their reports
incoming        messages received, each handed over once
former_inbox    messages of protocol version 1, which rest on the relay
"""
