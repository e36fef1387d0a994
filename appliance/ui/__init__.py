"""The web UI: a page whose scripts use the same HTTP API and WebSocket as every other client."""
