"""Primitives that name no subject of the product; imports nothing of ours above it."""
