"""The hub's tables as peewee models, for reads that are not hot. The SQL files are the truth;
a test compares them. Hot paths use raw statements on the same connections."""

import peewee

database = peewee.SqliteDatabase(None, autoconnect=False)


class Model(peewee.Model):
    class Meta:
        database = database
        legacy_table_names = False


class Channel(Model):
    id = peewee.TextField(primary_key=True)
    name = peewee.TextField(unique=True)
    description = peewee.TextField(null=True)
    created_at = peewee.TextField()

    class Meta:
        table_name = "channels"


class Topic(Model):
    id = peewee.TextField(primary_key=True)
    channel_id = peewee.TextField()
    title = peewee.TextField()
    created_at = peewee.TextField()
    updated_at = peewee.TextField()

    class Meta:
        table_name = "topics"


MODELS: tuple[type[Model], ...] = (Channel, Topic)
