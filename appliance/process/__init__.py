"""How the process is started, found, watched and stopped."""
