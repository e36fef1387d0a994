"""The outbox's table as a peewee model, for reads that are not hot. The SQL file is the truth;
a test compares them."""

import peewee

database = peewee.SqliteDatabase(None, autoconnect=False)


class Send(peewee.Model):
    id = peewee.TextField(primary_key=True)
    client_message_id = peewee.TextField(unique=True)
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

    class Meta:
        database = database
        table_name = "outbox"


MODELS: tuple[type[peewee.Model], ...] = (Send,)
