"""The table of hook runs, in the inbox's database."""

import peewee

from appliance.kernel.model import Table


class HookRun(Table):
    number = peewee.IntegerField(primary_key=True)
    id = peewee.TextField()
    at = peewee.IntegerField()
    hook = peewee.TextField()
    event = peewee.TextField()
    mesh = peewee.TextField()
    inbox_id = peewee.TextField(null=True)
    outcome = peewee.TextField()
    exit_code = peewee.IntegerField(null=True)
    duration_ms = peewee.IntegerField()
    truncated = peewee.IntegerField()
    said_bytes = peewee.IntegerField()
    acts = peewee.TextField()

    class Meta:
        table_name = "hook_runs"
