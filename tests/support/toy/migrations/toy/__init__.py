"""Schema of durable courier streams: `courier.sqlite3`."""
