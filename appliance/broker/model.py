"""Generated from the migrations of the broker by `just models`: its peewee models."""

import peewee

from appliance.kernel.model import Table


class Dedupe(Table):
    mesh_id = peewee.TextField()
    client_message_id = peewee.TextField()
    broker_message_id = peewee.TextField()
    history_id = peewee.TextField()
    request_fingerprint = peewee.BlobField()
    destination_kind = peewee.TextField()
    destination_ref = peewee.TextField()
    first_seen_ms = peewee.IntegerField()
    expires_ms = peewee.IntegerField(null=True)
    history_available = peewee.IntegerField()
    sender_pubkey = peewee.TextField(null=True)

    class Meta:
        table_name = "client_message_dedupe"
        primary_key = peewee.CompositeKey("mesh_id", "client_message_id")


class QueuedDelivery(Table):
    id = peewee.IntegerField(primary_key=True)
    mesh_id = peewee.TextField()
    broker_message_id = peewee.TextField()
    recipient = peewee.TextField()
    kind = peewee.TextField()
    rank = peewee.IntegerField()
    ready_ms = peewee.IntegerField()
    lease_owner = peewee.TextField(null=True)
    lease_until_ms = peewee.IntegerField(null=True)
    attempts = peewee.IntegerField()
    created_ms = peewee.IntegerField()
    last_error = peewee.TextField(null=True)

    class Meta:
        table_name = "delivery_queue"


class BrokerLog(Table):
    event_id = peewee.IntegerField(primary_key=True)
    at_ms = peewee.IntegerField()
    name = peewee.TextField()
    mesh_id = peewee.TextField()
    message_id = peewee.TextField()
    client_message_id = peewee.TextField(null=True)
    destination_kind = peewee.TextField()
    destination_ref = peewee.TextField()
    sender_pubkey = peewee.TextField()
    recipient = peewee.TextField(null=True)
    attempt = peewee.IntegerField(null=True)
    accepted_ms = peewee.IntegerField()
    error = peewee.TextField(null=True)

    class Meta:
        table_name = "log"


class Member(Table):
    mesh_id = peewee.TextField()
    pubkey = peewee.TextField()
    name = peewee.TextField()
    added_ms = peewee.IntegerField()
    revoked_ms = peewee.IntegerField(null=True)
    successor = peewee.TextField(null=True)

    class Meta:
        table_name = "member"
        primary_key = peewee.CompositeKey("mesh_id", "pubkey")


class Mention(Table):
    mesh_id = peewee.TextField()
    mentioned_pubkey = peewee.TextField()
    broker_message_id = peewee.TextField()

    class Meta:
        table_name = "mention_index"
        primary_key = peewee.CompositeKey("mesh_id", "mentioned_pubkey", "broker_message_id")


class Mesh(Table):
    id = peewee.TextField(primary_key=True)
    slug = peewee.TextField()
    dedupe_mode = peewee.TextField()
    dedupe_retention_days = peewee.IntegerField()
    message_retention_days = peewee.IntegerField()
    concurrency = peewee.TextField()
    created_ms = peewee.IntegerField()

    class Meta:
        table_name = "mesh"


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


class Tombstone(Table):
    broker_message_id = peewee.TextField(primary_key=True)
    mesh_id = peewee.TextField()
    removed_ms = peewee.IntegerField()

    class Meta:
        table_name = "message_tombstone"


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


class UsedNonce(Table):
    expires_ms = peewee.IntegerField()
    digest = peewee.BlobField()
    member = peewee.TextField()

    class Meta:
        table_name = "used_nonce"
        primary_key = peewee.CompositeKey("expires_ms", "digest")


class Webhook(Table):
    mesh_id = peewee.TextField()
    id = peewee.TextField()
    url = peewee.TextField()
    added_ms = peewee.IntegerField()
    secret = peewee.TextField()
    former_secret = peewee.TextField(null=True)
    former_until_ms = peewee.IntegerField(null=True)
    enabled = peewee.IntegerField()
    failing_since_ms = peewee.IntegerField(null=True)
    disabled_because = peewee.TextField(null=True)

    class Meta:
        table_name = "webhook"
        primary_key = peewee.CompositeKey("mesh_id", "id")
