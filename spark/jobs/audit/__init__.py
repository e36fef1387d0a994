"""Replays the log alone and compares the result with a snapshot's tables."""
