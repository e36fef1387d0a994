"""Erasure: an order's message contents leave segments, silver and gold, with a certificate."""
