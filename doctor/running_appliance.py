"""Make a workspace's running appliance build derived data again, over its HTTP route."""

import sqlite3
from contextlib import closing

from appliance.checks.repairs import CannotRepair
from appliance.checks.step import Step
from appliance.kernel.errors import ApplianceError
from appliance.sdk import discovery
from appliance.sdk.discovery import Endpoint, HubNotRunning
from appliance.sdk.http import ConnectionBroken, HubClient, Refused, Retry
from appliance.workspace.datadir import DataDir, read_lock
from doctor.actions import StepFailed
from doctor.repair import ApplianceRefused
from doctor.wire import PATH, SECONDS_MAX, STOP, RebuildOnDamage

ONCE = Retry(attempts_max=1)
QUEUE_SECONDS_MAX = 30.0  # for the appliance's queue, and for the complete check before
# Another attempt, or a stopped appliance, changes nothing.
_FINAL = frozenset({CannotRepair.code, RebuildOnDamage.code})


class ApplianceEnded(StepFailed):
    code = "APPLIANCE_ENDED"
    default_message = "the appliance did not answer, so it isn't known whether the step was applied"
    default_hint = "agentlip doctor repair --yes"


class RunningAppliance:
    """The appliance that holds the workspace's writer lock, by its `server.json`."""

    def __init__(self, datadir: DataDir) -> None:
        self._datadir = datadir

    def apply(self, step: Step) -> str:
        """Apply one step and return a description.

        Raise ApplianceRefused if the step was not applied, StepFailed if the step failed or isn't
        known."""
        timeout_seconds = SECONDS_MAX + QUEUE_SECONDS_MAX
        with closing(HubClient(self._verify, ONCE, timeout_seconds=timeout_seconds)) as client:
            try:
                reply = client.post(PATH, step.arguments, key="")
            except HubNotRunning as error:
                raise ApplianceRefused(str(error)) from error
            except ConnectionBroken as error:
                raise ApplianceEnded from error
            except Refused as error:
                raise _failure(error) from error
        if "done" not in reply:
            raise ApplianceEnded("the appliance sent an unexpected response")
        return str(reply["done"])

    def _verify(self) -> Endpoint:
        """Return the address for a process that serves this database and holds this lock: a
        workspace copy has an equal database id."""
        try:
            endpoint, health = discovery.local(self._datadir, {})
        except (ApplianceError, OSError, sqlite3.Error) as error:
            raise ApplianceRefused(str(error)) from error
        lock = read_lock(self._datadir)
        instance = lock.written.instance_id if lock.held and lock.written is not None else ""
        if not instance or instance != health.instance_id:
            raise ApplianceRefused(f"the appliance at {endpoint.url} does not hold this workspace")
        return endpoint


def _failure(refused: Refused) -> ApplianceError:
    if refused.http_status in (400, 404, 405):
        return ApplianceRefused("the running appliance has another version, which can't repair")
    kind = StepFailed if refused.answer_code in _FINAL else ApplianceRefused
    return kind(refused.message, hint=refused.hint or STOP)
