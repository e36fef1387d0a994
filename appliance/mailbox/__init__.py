"""Runs network agents that live on this appliance, and provides the agents' command line.

Each agent has a folder below `.agentlip/network`. Agents receive into the inbox, as messages in the
reserved mesh `network`, and the outbox sends each agent's messages to `network:NAME`.
"""
