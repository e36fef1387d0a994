"""A workspace on disk: its files and lock, its stores and their schemas, epochs, and swaps."""
