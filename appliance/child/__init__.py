"""Runs child processes that can't outlive their parent: lines of work, limits, and a supervisor."""
