"""Tools for HTTP and WebSocket that every subsystem uses; they know no subsystem."""
