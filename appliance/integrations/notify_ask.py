"""Adds waiting questions to the problems that the operator is notified about."""

from collections.abc import Callable

from appliance.hub.ask.service import Asks
from appliance.hub.ask.wire import AsksQuery
from appliance.kernel.auth import ADMIN, Principal
from appliance.kernel.errors import ApplianceError
from appliance.operations.problems import Observed, OperatorProblem

ASKS_MAX = 50
PRINCIPAL = Principal("appliance:notify", "appliance:notify", frozenset({ADMIN}))


def observe(findings: Callable[[], Observed], asks: Asks | None) -> Observed:
    """Return the doctor's current findings and the waiting asks."""
    observed = dict(findings())
    if asks is not None:
        try:
            waiting = asks.list(AsksQuery(state="waiting", limit=ASKS_MAX), PRINCIPAL).asks
        except ApplianceError:  # the hub's store fails
            return observed
        observed["ask"] = [
            OperatorProblem(
                ask.id, "question", f"{ask.asker} asks: {ask.text}",
                f"agentlip ask answer {ask.id} ANSWER",
            )
            for ask in waiting
        ]  # fmt: skip
    return observed
