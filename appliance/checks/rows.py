"""Checks whose findings are the rows of a statement."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from appliance.checks.check import NEWEST_IDS_MAX, Finding, Problem
from appliance.checks.context import Context
from appliance.kernel import meta
from appliance.kernel.clock import iso


class RowRule(msgspec.Struct, frozen=True):
    """Each row that the statement returns is a finding.

    sql      it can use `:now_ms`, and `:newest`, the number of rows that a cheap check reads
    subject  and message: `{0}` is the first column of the row
    tables   those it reads: another check reports that one is missing
    times    the columns that are milliseconds, and are shown as times
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
    """What finds the rows of all rules in that store."""

    def find(context: Context) -> Iterator[Finding]:
        values = {"now_ms": context.clock.now_ms(), "newest": NEWEST_IDS_MAX}
        for _, connection in context.opened(store):
            for rule in rules:
                if all(meta.exists(connection, table) for table in rule.tables):
                    for row in connection.execute(rule.sql, values):
                        yield rule.finding(row)

    return find
