"""Schema of the tokens: `auth.sqlite3`."""
