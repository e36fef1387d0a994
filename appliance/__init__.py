"""Agentlip Appliance: durable coordination for AI agents in one process."""

__version__ = "0.1.0"
