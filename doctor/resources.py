"""HTTP routes for the doctor's report and for repairs."""

from appliance.checks.repairs import CannotRepair
from appliance.kernel.route import Operation, Route
from appliance.web.health import READ_DOCTOR
from appliance.web.responders import Responders, reply_to_caller, reply_with
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
"""The scope for repairs. Tokens cannot have this scope directly: only `admin` includes it."""

READ_SETTINGS = "settings:read"
"""The scope for settings, which have paths and addresses. Only `admin` includes this scope."""


def routes(verdicts: Verdicts, rebuilds: Rebuilds, settings: SettingsView) -> list[Route]:
    return [
        Route("/api/v1/doctor", Responders(get=reply_with(verdicts.verdict)), {
            "GET": Operation(READ_DOCTOR, reply=DoctorVerdict, query=VerdictQuery,
                             errors=(UnknownCheck, ExpensiveCheck, VerdictUnavailable),
                             summary="Run the doctor's cheap checks, or get their last result"),
        }),
        Route(PATH, Responders(
            post=reply_to_caller(lambda command, who: rebuilds.apply(command, who.label)),
        ), {
            "POST": Operation(REPAIR_DOCTOR, body=RebuildRequest, reply=RebuildDone,
                              errors=(InvalidArguments, RebuildNeedsStop, RebuildRunning,
                                      RebuildTooLong, RebuildOnDamage, CannotRepair),
                              example={"what": "indexes", "store": "hub"},
                              summary="Build derived data again in the running appliance",
                              audited=True, in_maintenance=True),
        }),
        Route("/api/v1/settings", Responders(get=reply_with(lambda: settings)), {
            "GET": Operation(READ_SETTINGS, reply=SettingsView,
                             summary="List the settings, and where each comes from"),
        }),
    ]  # fmt: skip
