"""The table of webhooks in the hub's store."""

import peewee

from appliance.kernel.model import Table


class EventWebhook(Table):
    id = peewee.TextField(primary_key=True)
    url = peewee.TextField()
    description = peewee.TextField()
    wanted_json = peewee.TextField()
    format = peewee.TextField()
    enabled = peewee.IntegerField()
    cursor = peewee.IntegerField()
    secret = peewee.TextField()
    former_secret = peewee.TextField(null=True)
    former_until_ms = peewee.IntegerField(null=True)
    created_at = peewee.TextField()
    updated_at = peewee.TextField()
    generation = peewee.IntegerField()
    failing_since_ms = peewee.IntegerField(null=True)
    disabled_because = peewee.TextField(null=True)

    class Meta:
        table_name = "x_webhooks"
