"""Generated from the migrations of the courier by `just models`: its peewee models."""

import peewee

from appliance.kernel.model import Table


class Acked(Table):
    stream = peewee.TextField()
    slot = peewee.IntegerField()
    place = peewee.IntegerField()
    id = peewee.TextField()
    at_ms = peewee.IntegerField()

    class Meta:
        table_name = "acked"
        primary_key = peewee.CompositeKey("stream", "slot")


class Attempt(Table):
    number = peewee.IntegerField()
    slot = peewee.IntegerField()
    at_ms = peewee.IntegerField()
    holder = peewee.TextField()
    outcome = peewee.TextField()
    error = peewee.TextField()

    class Meta:
        table_name = "attempts"
        primary_key = peewee.CompositeKey("number", "slot")


class Envelope(Table):
    number = peewee.IntegerField(primary_key=True)
    stream = peewee.TextField()
    id = peewee.TextField()
    body = peewee.BlobField()
    priority = peewee.IntegerField()
    key = peewee.TextField(null=True)
    accepted_ms = peewee.IntegerField()
    due_ms = peewee.IntegerField(null=True)
    expires_ms = peewee.IntegerField(null=True)
    attempts = peewee.IntegerField()
    failures = peewee.IntegerField()
    reason = peewee.TextField(null=True)
    error = peewee.TextField()

    class Meta:
        table_name = "journal"


class Latest(Table):
    stream = peewee.TextField(primary_key=True)
    body = peewee.BlobField()
    at_ms = peewee.IntegerField()

    class Meta:
        table_name = "latest"


class Paused(Table):
    stream = peewee.TextField(primary_key=True)
    until_ms = peewee.IntegerField(null=True)

    class Meta:
        table_name = "paused"
