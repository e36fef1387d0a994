"""Reads and writes the audit log's file, for the appliance and for commands without it."""
