"""The plugins' tables in the hub's store."""

import peewee

from appliance.kernel.model import Table


class PluginCursor(Table):
    plugin = peewee.TextField(primary_key=True)
    cursor = peewee.IntegerField()
    redo_cursor = peewee.IntegerField(null=True)
    redo_until = peewee.IntegerField(null=True)
    updated_at = peewee.TextField()

    class Meta:
        table_name = "x_plugin_cursors"


class EnrichmentSet(Table):
    message_id = peewee.TextField()
    plugin = peewee.TextField()
    version = peewee.IntegerField()
    content_hash = peewee.BlobField()
    enrichment_ids = peewee.TextField()

    class Meta:
        table_name = "x_enrichment_sets"
        primary_key = peewee.CompositeKey("message_id", "plugin")
