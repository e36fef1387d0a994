"""The HTTP routes of the doctor's report and of repairs."""

from typing import Any

import falcon

from appliance.checks.repairs import CannotRepair
from appliance.kernel.route import Operation, Route
from appliance.web.health import READ_DOCTOR
from appliance.web.media import reply
from doctor.rebuilds import Rebuilds
from doctor.run import UnknownCheck
from doctor.settings_view import SettingsView
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
    RebuildDone,
    RebuildNeedsStop,
    RebuildOnDamage,
    RebuildRequest,
    RebuildRunning,
    RebuildTooLong,
)

REPAIR_DOCTOR = "doctor:repair"
"""The scope of repairs. No token can have it itself: only `admin` includes it."""

READ_SETTINGS = "settings:read"
"""The scope of settings, which have paths and addresses. Only `admin` includes it."""


class DoctorResource:
    def __init__(self, verdicts: Verdicts) -> None:
        self._verdicts = verdicts

    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._verdicts.verdict(req.context.query))


class RepairResource:
    def __init__(self, rebuilds: Rebuilds) -> None:
        self._rebuilds = rebuilds

    def on_post(self, req: Any, resp: falcon.Response, command: RebuildRequest) -> None:
        reply(resp, self._rebuilds.apply(command, req.context.principal.label))


class SettingsResource:
    def __init__(self, settings: SettingsView) -> None:
        self._settings = settings

    def on_get(self, _req: Any, resp: falcon.Response) -> None:
        reply(resp, self._settings)


def routes(verdicts: Verdicts, rebuilds: Rebuilds, settings: SettingsView) -> list[Route]:
    return [
        Route("/api/v1/doctor", DoctorResource(verdicts), {
            "GET": Operation(READ_DOCTOR, reply=DoctorVerdict, query=VerdictQuery,
                             errors=(UnknownCheck, ExpensiveCheck, VerdictUnavailable),
                             summary="Run the doctor's cheap checks, or get their last result"),
        }),
        Route(PATH, RepairResource(rebuilds), {
            "POST": Operation(REPAIR_DOCTOR, body=RebuildRequest, reply=RebuildDone,
                              errors=(InvalidArguments, RebuildNeedsStop, RebuildRunning,
                                      RebuildTooLong, RebuildOnDamage, CannotRepair),
                              example={"what": "indexes", "store": "hub"},
                              summary="Build derived data again in the running appliance"),
        }),
        Route("/api/v1/settings", SettingsResource(settings), {
            "GET": Operation(READ_SETTINGS, reply=SettingsView,
                             summary="List the settings, and where each comes from"),
        }),
    ]  # fmt: skip
