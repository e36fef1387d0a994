"""Generated from the migrations of the outbox by `just models`: its peewee models."""

import peewee

from appliance.kernel.model import Table


class Send(Table):
    id = peewee.TextField(primary_key=True)
    client_message_id = peewee.TextField()
    request_fingerprint = peewee.BlobField()
    payload = peewee.BlobField()
    enqueued_at = peewee.IntegerField()
    attempts = peewee.IntegerField()
    next_attempt_at = peewee.IntegerField()
    status = peewee.TextField()
    last_error = peewee.TextField(null=True)
    delivered_at = peewee.IntegerField(null=True)
    broker_message_id = peewee.TextField(null=True)
    aborted_at = peewee.IntegerField(null=True)
    aborted_by = peewee.TextField(null=True)
    superseded_by = peewee.TextField(null=True)
    mesh = peewee.TextField()
    target = peewee.TextField()
    route = peewee.TextField()
    destination_kind = peewee.TextField()
    destination_ref = peewee.TextField()
    reply_to_id = peewee.TextField(null=True)
    priority = peewee.TextField()
    meta = peewee.TextField(null=True)
    history_id = peewee.TextField(null=True)
    died_at = peewee.IntegerField(null=True)
    payload_dropped_at = peewee.IntegerField(null=True)
    principal = peewee.TextField(null=True)
    accepted_steady_ms = peewee.IntegerField()
    traceparent = peewee.TextField(null=True)

    class Meta:
        table_name = "outbox"
