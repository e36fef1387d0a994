"""A backup says how many notes it has."""

from appliance.checks.backup_rules import BackupRules

RULES = BackupRules(counted={"note": "note"})
