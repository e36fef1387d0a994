"""Starts, finds, watches and stops the process."""
