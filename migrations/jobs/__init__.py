"""Schema of jobs and their runs: `jobs.sqlite3`."""
