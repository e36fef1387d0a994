"""The tables of tokens."""

import peewee

from appliance.kernel.model import Table


class Token(Table):
    id = peewee.TextField(primary_key=True)
    name = peewee.TextField()
    hash = peewee.TextField()
    scopes = peewee.TextField()
    created_ms = peewee.IntegerField()
    expires_ms = peewee.IntegerField(null=True)
    revoked_ms = peewee.IntegerField(null=True)
    last_used_ms = peewee.IntegerField(null=True)
    senders = peewee.TextField(null=True)

    class Meta:
        table_name = "tokens"


class Retired(Table):
    hash = peewee.TextField(primary_key=True)
    token_id = peewee.TextField()
    until_ms = peewee.IntegerField()

    class Meta:
        table_name = "retired"
