"""States of agents and contacts."""

PENDING, ACTIVE, REVOKED = "pending", "active", "revoked"
