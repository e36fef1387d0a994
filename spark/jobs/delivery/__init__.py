"""Latency, attempts and dead letters of the outbox, the broker and the courier, by day."""
