"""Checks of the schemas: every table, index, trigger and view is as the migrations made it."""

from collections.abc import Iterator

from doctor import schema_model
from doctor.check import Check, Finding, Problem, Severity
from doctor.context import Context
from doctor.schema_model import SchemaObject

_REPAIR = "agentlip doctor repair --run store.objects"
_LOSES = {
    "table": "its rows are lost",
    "index": "reads that need it take longer with every row",
    "unique": "the same thing can be stored twice",
    "trigger": "what it prevents or updates no longer happens",
    "view": "reads that need it fail",
}


def _objects(context: Context) -> Iterator[Finding]:
    for store, connection in context.opened():
        present = schema_model.actual(connection)
        for name, wanted in sorted(schema_model.expected(connection, store).items()):
            there = present.get(name)
            if there is None:
                yield _missing(store, wanted)
            elif wanted.lenient:
                yield from _lacking(store, wanted, there)
            elif schema_model.normal(there.sql) != schema_model.normal(wanted.sql):
                yield _altered(store, wanted)


def _missing(store: str, wanted: SchemaObject) -> Finding:
    loses = _LOSES["unique" if wanted.is_unique_index else wanted.kind]
    return Finding(
        _severity(wanted),
        f"{store}.{wanted.name}",
        f"the {wanted.kind}{_of(wanted)} is missing; {loses}",
        _hint(wanted),
        problem="missing",
    )


def _altered(store: str, wanted: SchemaObject) -> Finding:
    return Finding(
        _severity(wanted),
        f"{store}.{wanted.name}",
        f"the {wanted.kind}{_of(wanted)} differs from what the migrations of this program made",
        _hint(wanted),
        problem="altered",
    )


def _lacking(store: str, wanted: SchemaObject, there: SchemaObject) -> Iterator[Finding]:
    """Another program made it. It may have more columns, and may write its statements
    differently."""
    if wanted.kind != "table":
        return
    lacking = schema_model.model_columns(wanted.sql) - schema_model.model_columns(there.sql)
    if lacking:
        yield Finding(
            Severity.ERROR,
            f"{store}.{wanted.name}",
            f"the table lacks columns: {', '.join(sorted(lacking))}",
            _hint(wanted),
            problem="altered",
        )


def _of(wanted: SchemaObject) -> str:
    return "" if wanted.kind in ("table", "view") else f" of {wanted.table}"


def _severity(wanted: SchemaObject) -> Severity:
    slow = wanted.kind == "index" and not wanted.is_unique_index
    return Severity.WARNING if slow else Severity.ERROR


def _hint(wanted: SchemaObject) -> str:
    return "agentlip doctor --all" if wanted.kind == "table" else _REPAIR


CHECKS = (
    Check(
        name="store.objects",
        inspects="every table, index, trigger and view is as the migrations made it",
        find=_objects,
        reads="the schemas of all stores (`sqlite_schema`), and the migrations of this program,"
        " which it runs in memory",
        problems=(
            Problem(
                "missing",
                "Another program removed a table, index, trigger or view. Without a trigger, rows"
                " can be changed that must not change; without an index, reads are slow.",
                "`agentlip doctor repair` creates indexes, triggers and views again. A missing"
                " table has lost its rows.",
            ),
            Problem(
                "altered",
                "Another program changed a table, index, trigger or view of this program.",
                "`agentlip doctor repair` creates indexes, triggers and views again as the"
                " migrations made them. Tables are not changed.",
            ),
        ),
    ),
)
