"""Schema of the relay: `relay.sqlite3`."""
