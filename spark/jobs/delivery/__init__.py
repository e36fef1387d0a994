"""Latency, attempts and dead letters of outbox, broker, courier and runs of jobs, by day."""
