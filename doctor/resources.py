"""The HTTP routes of the doctor's report and of repairs."""

from typing import Any

import falcon

from appliance.kernel.route import Operation, Route
from appliance.web.health import READ_DOCTOR
from appliance.web.media import reply
from doctor.rebuilds import OwnerSteps
from doctor.run import UnknownCheck
from doctor.store_actions import CannotRepair
from doctor.verdict import (
    DoctorVerdict,
    ExpensiveCheck,
    VerdictQuery,
    Verdicts,
    VerdictUnavailable,
)
from doctor.wire import (
    PATH,
    InvalidArguments,
    RepairStepDone,
    RepairStepRequest,
    StepNeedsStop,
    StepOnDamage,
    StepRunning,
    StepTooLong,
    UnknownAction,
)

REPAIR_DOCTOR = "doctor:repair"
"""The scope of repairs. No token can have it itself: only `admin` includes it."""


class DoctorResource:
    def __init__(self, verdicts: Verdicts) -> None:
        self._verdicts = verdicts

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._verdicts.verdict(req.context.query))


class RepairResource:
    def __init__(self, steps: OwnerSteps) -> None:
        self._steps = steps

    def on_post(self, req: Any, resp: falcon.Response, command: RepairStepRequest) -> None:
        reply(resp, self._steps.apply(command, req.context.principal.label))


def routes(verdicts: Verdicts, steps: OwnerSteps) -> list[Route]:
    return [
        Route("/api/v1/doctor", DoctorResource(verdicts), {
            "GET": Operation(READ_DOCTOR, reply=DoctorVerdict, query=VerdictQuery,
                             errors=(UnknownCheck, ExpensiveCheck, VerdictUnavailable),
                             summary="Run the doctor's cheap checks, or get their last result"),
        }),
        Route(PATH, RepairResource(steps), {
            "POST": Operation(REPAIR_DOCTOR, body=RepairStepRequest, reply=RepairStepDone,
                              errors=(UnknownAction, InvalidArguments, StepNeedsStop, StepRunning,
                                      StepTooLong, StepOnDamage, CannotRepair),
                              example={"action": "reindex", "arguments": {"store": "hub"}},
                              summary="Apply one step of a repair in the running appliance"),
        }),
    ]  # fmt: skip
