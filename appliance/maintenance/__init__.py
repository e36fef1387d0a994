"""Maintenance mode: begins, ends and shows it."""
