"""Checks whose findings are the rows from a statement."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from appliance.checks.check import NEWEST_IDS_MAX, Finding, Problem
from appliance.checks.context import Context
from appliance.kernel import meta
from appliance.kernel.clock import iso


class RowRule(msgspec.Struct, frozen=True):
    """A rule whose statement returns one row for each finding.

    sql      may use `:now_ms`, and `:newest`, the number of rows that a cheap check reads
    subject  and message: `{0}` is the row's first column; in the problem's hint, TASK_ID is the
             column `task_id`
    tables   the tables that the statement reads: another check reports a missing table
    times    the columns in milliseconds, which are shown as times
    """

    problem: Problem
    sql: str
    subject: str
    message: str
    tables: tuple[str, ...] = ()
    times: tuple[int, ...] = ()

    def finding(self, row: tuple[Any, ...], columns: Iterable[str]) -> Finding:
        shown = [iso(value) if i in self.times else value for i, value in enumerate(row)]
        subject, message = self.subject.format(*shown), self.message.format(*shown)
        return self.problem.finding(subject, message, known=dict(zip(columns, row, strict=True)))


def find_rows(store: str, *rules: RowRule) -> Callable[[Context], Iterator[Finding]]:
    """Return a function that finds the rows for all rules in that store."""

    def find(context: Context) -> Iterator[Finding]:
        values = {"now_ms": context.clock.now_ms(), "newest": NEWEST_IDS_MAX}
        for _, connection in context.opened(store):
            for rule in rules:
                if all(meta.exists(connection, table) for table in rule.tables):
                    rows = connection.execute(rule.sql, values)
                    for row in rows:
                        yield rule.finding(row, (each[0] for each in rows.description))

    return find
