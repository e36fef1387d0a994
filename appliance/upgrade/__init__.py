"""Upgrades of a workspace: what they would do, the backup before them, and the migration itself."""
