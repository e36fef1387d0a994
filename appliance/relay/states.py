"""Defines the states that agents and contacts have."""

PENDING, ACTIVE, REVOKED = "pending", "active", "revoked"
