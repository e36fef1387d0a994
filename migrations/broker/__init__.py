"""Schema of the broker: `broker.sqlite3`."""
