"""Daily latency, attempts and dead letters for the outbox, broker, courier and job runs."""
