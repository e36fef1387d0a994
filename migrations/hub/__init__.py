"""Schema of the hub: `db.sqlite3`."""
