"""Checks whose findings are the rows from a statement."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from appliance.checks.check import NEWEST_IDS_MAX, Finding, Problem
from appliance.checks.context import Context
from appliance.kernel import meta
from appliance.kernel.clock import iso


class RowRule(msgspec.Struct, frozen=True):
    """A rule whose statement returns one row for each finding.

    sql      may use `:now_ms`, and `:newest`, the number of rows that a cheap check reads
    subject  and message: `{0}` is the row's first column
    tables   the tables that the statement reads: another check reports a missing table
    times    the columns in milliseconds, which are shown as times
    """

    problem: Problem
    sql: str
    subject: str
    message: str
    tables: tuple[str, ...] = ()
    times: tuple[int, ...] = ()

    def finding(self, row: tuple[Any, ...]) -> Finding:
        shown = [iso(value) if i in self.times else value for i, value in enumerate(row)]
        return self.problem.finding(self.subject.format(*shown), self.message.format(*shown))


def find_rows(store: str, *rules: RowRule) -> Callable[[Context], Iterator[Finding]]:
    """Return a function that finds the rows for all rules in that store."""

    def find(context: Context) -> Iterator[Finding]:
        values = {"now_ms": context.clock.now_ms(), "newest": NEWEST_IDS_MAX}
        for _, connection in context.opened(store):
            for rule in rules:
                if all(meta.exists(connection, table) for table in rule.tables):
                    for row in connection.execute(rule.sql, values):
                        yield rule.finding(row)

    return find
