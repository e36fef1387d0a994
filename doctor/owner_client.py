"""Makes the running appliance of a workspace apply steps of a repair, over its HTTP route."""

import http.client
import sqlite3

import msgspec

from appliance.kernel.datadir import DataDir, read_lock
from appliance.kernel.errors import ApplianceError
from appliance.sdk import discovery
from appliance.sdk.discovery import Endpoint
from doctor.actions import StepFailed
from doctor.repair import OwnerRefused
from doctor.settings import DoctorSettings
from doctor.step import Step
from doctor.wire import PATH, RepairStepDone, RepairStepRequest, StepRunning

# What the appliance needs besides the step itself: its queue, and the complete check before.
_MORE_SECONDS = 30.0
_BODY_BYTES_MAX = 64 * 1024
# Errors after which the store is as before, and nothing in it is the reason.
_REFUSALS = frozenset(
    {
        "STEP_NEEDS_STOP",
        "STEP_TOO_LONG",
        "STORAGE_SUSPECT",
        "STORE_SUSPENDED",
        "UNKNOWN_ACTION",
    }
)


class OwnerEnded(StepFailed):
    code = "OWNER_ENDED"
    default_message = "the appliance did not answer, so it isn't known whether the step was applied"
    default_hint = "agentlip doctor repair --yes"


class OwnerFailure(msgspec.Struct, frozen=True):
    """The body of an error, as far as a repair shows it."""

    error: str = ""
    code: str = ""
    hint: str = ""


class RunningAppliance:
    """The appliance that holds the writer lock of the workspace, by its `server.json`."""

    def __init__(self, datadir: DataDir, settings: DoctorSettings) -> None:
        self._datadir = datadir
        self._seconds_max = settings.owner_step_seconds_max + _MORE_SECONDS

    def apply(self, step: Step) -> str:
        """Applies one step and says what it did.

        Raises OwnerRefused if it was not applied, and StepFailed if it failed or isn't known."""
        endpoint = self._verified()
        body = msgspec.json.encode(RepairStepRequest(step.action, dict(step.arguments)))
        status, content = self._post(endpoint, body)
        if status == 200:
            return _decoded(content, RepairStepDone).done
        raise _error(status, _failure(content))

    def _verified(self) -> Endpoint:
        """The address, of a process that serves this database and holds this lock: a copy of the
        workspace has the same database id."""
        try:
            endpoint, health = discovery.local(self._datadir, {})
        except (ApplianceError, OSError, sqlite3.Error) as error:
            raise OwnerRefused(str(error)) from error
        lock = read_lock(self._datadir)
        instance = lock.written.instance_id if lock.held and lock.written is not None else ""
        if not instance or instance != health.instance_id:
            raise OwnerRefused(f"the appliance at {endpoint.url} does not hold this workspace")
        return endpoint

    def _post(self, endpoint: Endpoint, body: bytes) -> tuple[int, bytes]:
        connection = discovery.connect(endpoint, self._seconds_max)
        headers = {"Content-Type": "application/json"}
        if endpoint.token:
            headers["Authorization"] = f"Bearer {endpoint.token}"
        try:
            connection.request("POST", PATH, body, headers)
            response = connection.getresponse()
            return response.status, response.read(_BODY_BYTES_MAX)
        except ConnectionRefusedError as error:
            raise OwnerRefused(f"no appliance answers at {endpoint.url}") from error
        except (OSError, http.client.HTTPException) as error:
            raise OwnerEnded from error
        finally:
            connection.close()


def _error(status: int, failure: OwnerFailure) -> ApplianceError:
    if status in (404, 405):
        return OwnerRefused("the running appliance has another version, which can't repair")
    if status in (401, 403):
        return OwnerRefused(f"the appliance refuses this workspace's token: {failure.error}")
    text = failure.error or f"the appliance responded with status {status}"
    if failure.code == StepRunning.code:  # the step of a killed repair may still run
        return OwnerRefused(text, hint="wait some seconds, then: agentlip doctor repair --yes")
    if failure.code in _REFUSALS:
        return OwnerRefused(text, hint=failure.hint)
    return StepFailed(text, hint=failure.hint)


def _failure(content: bytes) -> OwnerFailure:
    try:
        return msgspec.json.decode(content, type=OwnerFailure)
    except msgspec.DecodeError:
        return OwnerFailure()


def _decoded(content: bytes, kind: type[RepairStepDone]) -> RepairStepDone:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError:
        raise OwnerEnded("the appliance sent an unexpected response") from None
