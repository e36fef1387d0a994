"""Generated from the migrations of the broker by `just models`: its peewee models."""

import peewee

from appliance.kernel.model import Table


class History(Table):
    id = peewee.TextField(primary_key=True)
    mesh_id = peewee.TextField()
    broker_message_id = peewee.TextField()
    destination_kind = peewee.TextField()
    destination_ref = peewee.TextField()
    sender_pubkey = peewee.TextField()
    created_ms = peewee.IntegerField()

    class Meta:
        table_name = "message_history"


class QueuedMessage(Table):
    id = peewee.TextField(primary_key=True)
    mesh_id = peewee.TextField()
    client_message_id = peewee.TextField(null=True)
    destination_kind = peewee.TextField()
    destination_ref = peewee.TextField()
    sender_pubkey = peewee.TextField()
    sender_name = peewee.TextField()
    priority = peewee.TextField()
    meta = peewee.TextField(null=True)
    body = peewee.TextField()
    reply_to_id = peewee.TextField(null=True)
    created_ms = peewee.IntegerField()
    skew_ms = peewee.IntegerField()

    class Meta:
        table_name = "message_queue"


class Destination(Table):
    mesh_id = peewee.TextField()
    kind = peewee.TextField()
    name = peewee.TextField()
    created_ms = peewee.IntegerField()

    class Meta:
        table_name = "place"
        primary_key = peewee.CompositeKey("mesh_id", "kind", "name")


class DestinationSubscription(Table):
    mesh_id = peewee.TextField()
    kind = peewee.TextField()
    name = peewee.TextField()
    subscriber = peewee.TextField()
    since_ms = peewee.IntegerField()

    class Meta:
        table_name = "subscription"
        primary_key = peewee.CompositeKey("mesh_id", "kind", "name", "subscriber")


class TopicMessage(Table):
    id = peewee.TextField(primary_key=True)
    mesh_id = peewee.TextField()
    client_message_id = peewee.TextField(null=True)
    topic = peewee.TextField()
    sender_pubkey = peewee.TextField()
    sender_name = peewee.TextField()
    priority = peewee.TextField()
    meta = peewee.TextField(null=True)
    body = peewee.TextField()
    reply_to_id = peewee.TextField(null=True)
    created_ms = peewee.IntegerField()
    skew_ms = peewee.IntegerField()

    class Meta:
        table_name = "topic_message"
