"""A conversation in which everything happens, and the tables of a lake as plain rows."""

from spark.jobs.ingest import schema
from tests.spark.log import Log


def rows(spark, silver, table, *order):
    frame = silver.current().read(spark, table)
    return [row.asDict() for row in frame.orderBy(*order or ["event_id"]).collect()]


def everything(spark, silver):
    """All tables as plain rows, to compare two lakes."""
    return {
        table: sorted(repr(row) for row in silver.current().read(spark, table).collect())
        for table in schema.OUTPUT
    }


def conversation(**of):
    """A log in which everything happens that can, over three days."""
    log = Log(**of)
    channel = log.channel()
    here, there = log.topic(channel, "here"), log.topic(channel, "there")
    first = log.wait(seconds=10).say(here, "ann", "one")
    second = log.wait(seconds=20).say(here, "bob", "two")
    log.wait(days=1).edit(first, "one and a half")
    log.wait(seconds=5).move(second, there)
    log.wait(seconds=5).rename(there, "elsewhere")
    log.attach(here, {"url": "https://example.com", "n": 1.5})
    log.enrich(first)
    log.wait(days=1).delete(first)
    log.say(there, "ann", "three")
    return log, here, there, first, second
