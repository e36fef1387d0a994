"""Agents of the network that this appliance keeps, and their command line.

Each has a folder below `.agentlip/network`. They receive into the inbox, as messages of the
reserved mesh `network`, and the outbox sends for them to `network:NAME`.
"""
