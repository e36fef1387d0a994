"""DERIVED: what `agentlip doctor repair rebuild` can build again, and from what."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from doctor import schema_model
from doctor.check import Finding, Severity
from doctor.context import Context
from doctor.plans import PLANS, recreate, store_step
from doctor.run import CheckOutcome
from doctor.step import Step


class Derived(msgspec.Struct, frozen=True):
    """checks   those that run before and after
    means    what it is
    """

    means: str
    checks: tuple[str, ...]


DERIVED: dict[str, Derived] = {
    "fts": Derived("the full-text index of the messages", ("hub.search", "hub.search-in-step")),
    "views": Derived("the views of all stores", ("store.objects",)),
    "indexes": Derived("the indexes of all stores", ("store.integrity", "store.objects")),
    "event-scopes": Derived("empty scopes of events, from their payload", ("events.scope",)),
}


def rebuild_steps(
    context: Context, what: str, outcomes: Sequence[CheckOutcome] = ()
) -> Iterable[Step]:
    """The steps, whether or not a check finds a problem. `outcomes`: results of the checks that
    ran before."""
    check = DERIVED[what].checks[0]
    if what == "indexes":
        return [*_recreate(context, "index"), *_reindex(context, check, outcomes)]
    if what == "views":
        return list(_recreate(context, "view"))
    return PLANS[check](context, [Finding(Severity.INFO, "hub", "", check=check)])


def _recreate(context: Context, kind: str) -> Iterator[Step]:
    """The objects of that kind that are missing or altered."""
    for store, connection in context.opened():
        there = schema_model.actual(connection)
        for name, wanted in schema_model.expected(connection, store).items():
            own = there.get(name)
            same = own is not None and (
                wanted.lenient or schema_model.normal(own.sql) == schema_model.normal(wanted.sql)
            )
            if wanted.kind == kind and not same:
                finding = Finding(Severity.INFO, f"{store}.{name}", "", check="store.objects")
                yield recreate(context, finding, store, wanted)


def _reindex(context: Context, check: str, outcomes: Sequence[CheckOutcome]) -> Iterator[Step]:
    findings = [each for outcome in outcomes if outcome.check == check for each in outcome.findings]
    damaged = {finding.subject.partition(".")[0] for finding in findings}
    for store, _ in context.opened():
        finding = Finding(Severity.INFO, store, "", check=check)
        message = f"build the indexes of {store} again"
        yield store_step(context, finding, "reindex", message, store, damaged=store in damaged)
