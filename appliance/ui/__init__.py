"""Serves the web UI: a page whose scripts use the HTTP API and WebSocket like every other
client."""
