"""Checks of the host, the settings and the stores, one subject per module."""
