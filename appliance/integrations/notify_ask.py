"""Adds waiting questions, overdue entries, used up ceilings and the agent network's security alerts
to the operator's problems."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from appliance.kernel.auth import ADMIN, Principal
from appliance.kernel.errors import ApplianceError
from appliance.operations.problems import Observed, OperatorProblem

if TYPE_CHECKING:
    from appliance.hub.ask.service import Asks
    from appliance.hub.bounds.service import Bounds
    from appliance.hub.entries.service import Entries
    from appliance.mailbox.service import Mailbox

SHOWN_MAX = 50  # asks, and entries
PRINCIPAL = Principal("appliance:notify", "appliance:notify", frozenset({ADMIN}))


def observe(
    findings: Callable[[], Observed],
    asks: "Asks | None",
    entries: "Entries | None",
    bounds: "Bounds | None" = None,
    mailbox: "Mailbox | None" = None,
) -> Observed:
    """Return the doctor's current findings, the waiting asks, the overdue entries, what limits
    have paused or will pause soon, and the agent network's security alerts."""
    observed = dict(findings())
    if mailbox is not None:
        observed["network"] = _list_alerts(mailbox)
    try:
        if asks is not None:
            observed["ask"] = _questions(asks)
        if entries is not None:
            observed["entries"] = _overdue(entries)
        if bounds is not None:
            observed["bounds"] = _list_limited(bounds)
    except ApplianceError:  # the hub's store fails
        pass
    return observed


def _questions(asks: "Asks") -> list[OperatorProblem]:
    from appliance.hub.ask.wire import AsksQuery

    waiting = asks.list(AsksQuery(state="waiting", limit=SHOWN_MAX), PRINCIPAL).asks
    return [
        OperatorProblem(
            ask.id, "question", f"{ask.asker} asks: {ask.text}",
            f"agentlip ask answer {ask.id} ANSWER",
        )
        for ask in waiting
    ]  # fmt: skip


def _list_alerts(mailbox: "Mailbox") -> list[OperatorProblem]:
    """Return each alert once, although each agent got it."""
    problems = {
        alert.id: OperatorProblem(
            alert.id, "alert", f"{alert.sender} announces in the agent network: {alert.text}",
            "agentlip network broadcasts",
        )
        for alert in mailbox.alerts()
    }  # fmt: skip
    return list(problems.values())


def _overdue(entries: "Entries") -> list[OperatorProblem]:
    return [
        OperatorProblem(
            str(entry.id), "warning",
            f"{entry.name} has not acknowledged {entry.message.sender}'s message in time",
            f"agentlip msg show {entry.message.id} --receipts",
        )
        for entry in entries.overdue(SHOWN_MAX)
    ]  # fmt: skip


def _list_limited(bounds: "Bounds") -> list[OperatorProblem]:
    pauses, ceilings = bounds.problems(SHOWN_MAX)
    return [
        *(
            OperatorProblem(
                f"pause-{pause.id}", "warning",
                f"{pause.topic or pause.subject} is paused: {pause.reason}", "agentlip pauses",
            )
            for pause in pauses
        ),
        *(
            OperatorProblem(
                f"ceiling-{ceiling.usage.day}-{ceiling.name}", "warning",
                f"{ceiling.name} has used 80 % of its ceiling for today", "agentlip ceiling list",
            )
            for ceiling in ceilings
        ),
    ]  # fmt: skip
