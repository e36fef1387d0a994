"""Adds waiting questions and overdue entries to the operator's problems."""

from collections.abc import Callable

from appliance.hub.ask.service import Asks
from appliance.hub.ask.wire import AsksQuery
from appliance.hub.entries.service import Entries
from appliance.kernel.auth import ADMIN, Principal
from appliance.kernel.errors import ApplianceError
from appliance.operations.problems import Observed, OperatorProblem

SHOWN_MAX = 50  # asks, and entries
PRINCIPAL = Principal("appliance:notify", "appliance:notify", frozenset({ADMIN}))


def observe(
    findings: Callable[[], Observed], asks: Asks | None, entries: Entries | None
) -> Observed:
    """Return the doctor's current findings, the waiting asks and the overdue entries."""
    observed = dict(findings())
    try:
        if asks is not None:
            observed["ask"] = _questions(asks)
        if entries is not None:
            observed["entries"] = _overdue(entries)
    except ApplianceError:  # the hub's store fails
        pass
    return observed


def _questions(asks: Asks) -> list[OperatorProblem]:
    waiting = asks.list(AsksQuery(state="waiting", limit=SHOWN_MAX), PRINCIPAL).asks
    return [
        OperatorProblem(
            ask.id, "question", f"{ask.asker} asks: {ask.text}",
            f"agentlip ask answer {ask.id} ANSWER",
        )
        for ask in waiting
    ]  # fmt: skip


def _overdue(entries: Entries) -> list[OperatorProblem]:
    return [
        OperatorProblem(
            str(entry.id), "warning",
            f"{entry.name} has not acknowledged {entry.message.sender}'s message in time",
            f"agentlip msg show {entry.message.id} --receipts",
        )
        for entry in entries.overdue(SHOWN_MAX)
    ]  # fmt: skip
