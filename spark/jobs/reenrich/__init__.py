"""Runs a linkifier over the whole history; the result is a file of changes for the hub."""
