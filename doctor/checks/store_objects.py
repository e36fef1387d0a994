"""Checks for schemas: every table, index, trigger and view is as the migrations made it."""

import re
import sqlite3
from collections.abc import Iterator, Mapping

from appliance.checks.check import RESTORE, Check, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.workspace.migration import load
from appliance.workspace.upgrade import state
from doctor import schema_model
from doctor.derived import BY_TRIGGER
from doctor.schema_model import SchemaObject

_CHANGES = re.compile(r"\b(delete from|update (?!of)\w|raise\(|replace into)")
_REPAIR = "agentlip doctor repair --run store.objects --yes"
_LOSES = {
    "table": "its rows are lost",
    "index": "reads that need it take longer with every row",
    "unique": "the same thing can be stored twice",
    "trigger": "what it prevents or updates no longer happens",
    "view": "reads that need it fail",
}


def _objects(context: Context) -> Iterator[Finding]:
    for store, connection in context.opened(*context.present):
        present = schema_model.actual(connection)
        model = schema_model.read_expected(connection, store)
        yield from _of_store(store, model, present)


def _of_store(
    store: str, model: Mapping[str, SchemaObject], present: Mapping[str, SchemaObject]
) -> Iterator[Finding]:
    """Find differences from the model. Objects that belonged to a missing table are not listed."""
    for name, wanted in sorted(model.items()):
        there = present.get(name)
        if there is None:
            if wanted.table == name or wanted.table in present or wanted.kind == "view":
                yield _missing(store, wanted)
        elif wanted.kind == "table" and (lacking := _lacking(wanted, there)):
            yield _altered_table(store, wanted, lacking)
        elif not wanted.lenient and not schema_model.is_same(wanted, there):
            yield _altered(store, wanted)
    for name, there in sorted(present.items()):
        unknown = name not in model and name not in BY_TRIGGER
        if there.kind == "trigger" and unknown and there.table in model:
            yield _foreign(store, there, model[there.table].lenient)


def _migratable(context: Context) -> Iterator[Finding]:
    """Try the steps that the next start applies on a model without rows."""
    for store, connection in context.opened():
        schema = state(connection, store)
        if not schema.pending or not schema.schema or schema.too_new:
            continue
        try:
            schema_model.apply(schema_model.actual(connection), load(store), schema.pending)
        except sqlite3.Error as error:
            yield HALF_MIGRATED.finding(
                store, f"the next start can't migrate it: {', '.join(schema.pending)}: {error}"
            )


def _foreign(store: str, there: SchemaObject, shared: bool) -> Finding:
    """Build the finding for a foreign object. `shared`: another program made the table, and may
    need its triggers, if they change no row there."""
    harmless = shared and not _CHANGES.search(schema_model.normal(there.sql))
    return OTHER_TRIGGER.finding(
        f"{store}.{there.name}",
        f"another program made this trigger on {there.table}: the trigger can change or remove "
        "every new row",
        severity=Severity.WARNING if harmless else Severity.ERROR,
    )


def _missing(store: str, wanted: SchemaObject) -> Finding:
    loses = _LOSES["unique" if wanted.is_unique_index else wanted.kind]
    return MISSING.finding(
        f"{store}.{wanted.name}",
        f"the {wanted.kind}{_of(wanted)} is missing; {loses}",
        RESTORE if wanted.kind == "table" else _REPAIR,
        severity=_severity(wanted),
    )


def _altered(store: str, wanted: SchemaObject) -> Finding:
    return ALTERED.finding(
        f"{store}.{wanted.name}",
        f"the {wanted.kind}{_of(wanted)} differs from the one that this program's migrations made",
        "" if wanted.kind == "table" else _REPAIR,
        severity=_severity(wanted),
    )


def _lacking(wanted: SchemaObject, there: SchemaObject) -> frozenset[str]:
    """Return the missing columns. Another program's table may have more columns, and may write
    statements differently."""
    if schema_model.is_same(wanted, there):
        return frozenset()
    return schema_model.model_columns(wanted.sql) - schema_model.model_columns(there.sql)


def _altered_table(store: str, wanted: SchemaObject, lacking: frozenset[str]) -> Finding:
    return MISSING.finding(
        f"{store}.{wanted.name}", f"the table lacks columns: {', '.join(sorted(lacking))}", RESTORE
    )


def _of(wanted: SchemaObject) -> str:
    return "" if wanted.kind in ("table", "view") else f" of {wanted.table}"


def _severity(wanted: SchemaObject) -> Severity:
    slow = wanted.kind == "index" and not wanted.is_unique_index
    return Severity.WARNING if slow else Severity.ERROR


HALF_MIGRATED = Problem("half-migrated", Severity.ERROR, hint=RESTORE)
MISSING = Problem("missing", Severity.ERROR)
ALTERED = Problem("altered")
OTHER_TRIGGER = Problem("foreign-trigger", hint=_REPAIR)
CHECKS = (
    Check(
        name="store.migratable", inspects="the next start can migrate every store",
        find=_migratable, problems=(HALF_MIGRATED,),
    ),
    Check(
        name="store.objects",
        inspects="every table, index, trigger and view matches the migrations",
        find=_objects,
        problems=(MISSING, ALTERED, OTHER_TRIGGER),
    ),
)  # fmt: skip
