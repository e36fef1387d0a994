"""Digests each topic: its keywords, similar topics, and who answers whom."""
