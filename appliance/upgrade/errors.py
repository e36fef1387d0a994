"""The errors of upgrades."""

from appliance.kernel.errors import Conflict, Unavailable


class MigrationNotSaved(Unavailable):
    code = "MIGRATION_NOT_SAVED"
    default_message = "no backup could be made before the migration, so nothing was changed"
    default_hint = (
        "free space: df -h .agentlip; or without a backup: agentlipd up --migrate-without-backup"
    )


class MigrationNotPossible(Conflict):
    code = "MIGRATION_NOT_POSSIBLE"
    default_message = "this program can't migrate the workspace; nothing was changed"
    default_hint = "agentlip migrate --plan"
