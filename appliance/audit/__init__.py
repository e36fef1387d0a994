"""Keeps the audit log in the appliance: what administrators did, over HTTP, for tools and by
commands."""
