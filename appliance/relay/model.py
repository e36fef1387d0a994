"""Generated from the migrations of the relay by `just models`: its peewee models."""

import peewee

from appliance.kernel.model import Table


class RelayAdmin(Table):
    agent = peewee.TextField(primary_key=True)
    public_key = peewee.TextField()
    added_ms = peewee.IntegerField()
    removed_ms = peewee.IntegerField(null=True)

    class Meta:
        table_name = "admins"


class Agent(Table):
    name = peewee.TextField(primary_key=True)
    public_key = peewee.TextField()
    owner_email = peewee.TextField()
    endpoint = peewee.TextField(null=True)
    version = peewee.TextField()
    status = peewee.TextField()
    address = peewee.TextField()
    created_ms = peewee.IntegerField()
    decided_by = peewee.TextField(null=True)
    decided_ms = peewee.IntegerField(null=True)
    last_seen_ms = peewee.IntegerField(null=True)
    former_key = peewee.TextField(null=True)
    rotation = peewee.TextField(null=True)
    reach_problem = peewee.TextField(null=True)
    reach_ms = peewee.IntegerField(null=True)

    class Meta:
        table_name = "agents"


class Approval(Table):
    agent = peewee.TextField()
    admin = peewee.TextField()
    ask_id = peewee.TextField(null=True)
    approved_ms = peewee.IntegerField(null=True)

    class Meta:
        table_name = "approvals"
        primary_key = peewee.CompositeKey("agent", "admin")


class Broadcast(Table):
    number = peewee.IntegerField(primary_key=True)
    id = peewee.TextField()
    type = peewee.TextField()
    payload = peewee.TextField()
    sender = peewee.TextField()
    signature = peewee.TextField()
    created_ms = peewee.IntegerField()

    class Meta:
        table_name = "broadcasts"


class ContactEvent(Table):
    id = peewee.IntegerField(primary_key=True)
    agent = peewee.TextField()
    contact = peewee.TextField()
    event = peewee.TextField()
    at_ms = peewee.IntegerField()

    class Meta:
        table_name = "contact_events"


class Contact(Table):
    agent_a = peewee.TextField()
    agent_b = peewee.TextField()
    status = peewee.TextField()
    requested_by = peewee.TextField()
    greeting = peewee.TextField(null=True)
    requested_ms = peewee.IntegerField()
    accepted_ms = peewee.IntegerField(null=True)

    class Meta:
        table_name = "contacts"
        primary_key = peewee.CompositeKey("agent_a", "agent_b")


class RelayLog(Table):
    event_id = peewee.IntegerField(primary_key=True)
    at_ms = peewee.IntegerField()
    name = peewee.TextField()
    agent = peewee.TextField()
    admin = peewee.TextField(null=True)

    class Meta:
        table_name = "log"


class UsedSignature(Table):
    digest = peewee.BlobField(primary_key=True)
    expires_ms = peewee.IntegerField()

    class Meta:
        table_name = "used_signature"


class V1StoredMessage(Table):
    number = peewee.IntegerField(primary_key=True)
    recipient = peewee.TextField()
    sender = peewee.TextField()
    message_id = peewee.TextField()
    nonce = peewee.TextField()
    body = peewee.TextField(null=True)
    at_ms = peewee.IntegerField()

    class Meta:
        table_name = "v1_messages"


class EmailVerification(Table):
    id = peewee.IntegerField(primary_key=True)
    agent = peewee.TextField()
    email = peewee.TextField()
    code = peewee.BlobField()
    public_key = peewee.TextField(null=True)
    attempts = peewee.IntegerField()
    expires_ms = peewee.IntegerField()
    verified_ms = peewee.IntegerField(null=True)

    class Meta:
        table_name = "verifications"
