"""Agents of the network that this machine keeps, and their command line."""
