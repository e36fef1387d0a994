"""Generated from the migrations of the jobs by `just models`: its peewee models."""

import peewee

from appliance.kernel.model import Table


class StoredAttempt(Table):
    run_id = peewee.TextField()
    number = peewee.IntegerField()
    state = peewee.TextField()
    runner = peewee.TextField()
    lease_until_steady_ms = peewee.IntegerField()
    handle = peewee.TextField(null=True)
    limits = peewee.TextField(null=True)
    started_at = peewee.TextField()
    ended_at = peewee.TextField(null=True)
    exit_code = peewee.IntegerField(null=True)
    error = peewee.TextField(null=True)
    output_bytes = peewee.IntegerField(null=True)
    tail = peewee.TextField(null=True)
    artefacts = peewee.TextField(null=True)

    class Meta:
        table_name = "attempts"
        primary_key = peewee.CompositeKey("run_id", "number")


class StoredJob(Table):
    name = peewee.TextField(primary_key=True)
    spec = peewee.TextField(null=True)
    paused_at = peewee.TextField(null=True)
    cron_from_ms = peewee.IntegerField()
    interval_from_steady_ms = peewee.IntegerField()

    class Meta:
        table_name = "jobs"


class StoredRunEvent(Table):
    event_id = peewee.IntegerField(primary_key=True)
    ts = peewee.TextField()
    name = peewee.TextField()
    run_id = peewee.TextField()
    job = peewee.TextField()
    attempt = peewee.IntegerField()
    cause = peewee.TextField()
    run_state = peewee.TextField()
    accepted_at = peewee.TextField()
    delivered_at = peewee.TextField()
    exit_code = peewee.IntegerField(null=True)
    error = peewee.TextField(null=True)

    class Meta:
        table_name = "log"


class StoredRun(Table):
    id = peewee.TextField(primary_key=True)
    job = peewee.TextField()
    state = peewee.TextField()
    cause = peewee.TextField()
    detail = peewee.TextField(null=True)
    principal = peewee.TextField(null=True)
    spec = peewee.TextField()
    concurrency_key = peewee.TextField()
    created_at = peewee.TextField()
    due_steady_ms = peewee.IntegerField()
    attempts = peewee.IntegerField()
    cancel_requested = peewee.IntegerField()
    ask_id = peewee.TextField(null=True)
    ended_at = peewee.TextField(null=True)
    exit_code = peewee.IntegerField(null=True)
    error = peewee.TextField(null=True)
    posted = peewee.IntegerField()

    class Meta:
        table_name = "runs"
