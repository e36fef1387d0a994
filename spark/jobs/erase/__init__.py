"""Removes an order's message contents from segments, silver and gold, with a certificate."""
