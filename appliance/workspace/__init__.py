"""Reads and writes a workspace on disk: files and lock, stores and schemas, epochs, and swaps."""
