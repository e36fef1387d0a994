"""Upgrades a workspace: the plan, the backup before the migration, and the migration."""
