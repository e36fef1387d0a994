"""Generated from the migrations of the inbox by `just models`: its peewee models."""

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
    command = peewee.IntegerField(null=True)

    class Meta:
        table_name = "hook_runs"


class ReceivedMessage(Table):
    number = peewee.IntegerField(primary_key=True)
    id = peewee.TextField()
    client_message_id = peewee.TextField()
    broker_message_id = peewee.TextField(null=True)
    mesh = peewee.TextField()
    topic = peewee.TextField(null=True)
    sender_pubkey = peewee.TextField()
    sender_name = peewee.TextField()
    body = peewee.TextField(null=True)
    meta = peewee.TextField(null=True)
    received_at = peewee.IntegerField()
    reply_to_id = peewee.TextField(null=True)
    destination_kind = peewee.TextField()
    destination_ref = peewee.TextField()
    priority = peewee.TextField()
    created_at = peewee.TextField()
    own = peewee.IntegerField()

    class Meta:
        table_name = "inbox"


class Profile(Table):
    mesh = peewee.TextField(primary_key=True)
    summary = peewee.TextField()
    status = peewee.TextField()
    visible = peewee.IntegerField()
    changed_at = peewee.IntegerField()

    class Meta:
        table_name = "profiles"
