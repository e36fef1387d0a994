"""The door: HTTP and WebSocket tools that every subsystem's resources stand on."""
