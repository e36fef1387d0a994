"""Schema of what this appliance received: `inbox.sqlite3`."""
