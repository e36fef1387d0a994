"""Makes the running appliance of a workspace build derived data again, over its HTTP route."""

import http.client
import sqlite3

import msgspec

from appliance.checks.repairs import CannotRepair
from appliance.checks.step import Step
from appliance.kernel.errors import ApplianceError
from appliance.sdk import discovery
from appliance.sdk.discovery import Endpoint
from appliance.workspace.datadir import DataDir, read_lock
from doctor.actions import StepFailed
from doctor.repair import OwnerRefused
from doctor.wire import PATH, SECONDS_MAX, STOP, RebuildDone, RebuildOnDamage

# What the appliance needs besides the step itself: its queue, and the complete check before.
_ANSWER_SECONDS_MAX = SECONDS_MAX + 30.0
_BODY_BYTES_MAX = 64 * 1024
# Another attempt, or a stopped appliance, has the same result.
_FINAL = frozenset({CannotRepair.code, RebuildOnDamage.code})


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

    def __init__(self, datadir: DataDir) -> None:
        self._datadir = datadir

    def apply(self, step: Step) -> str:
        """Applies one step and says what it did.

        Raises OwnerRefused if it was not applied, and StepFailed if it failed or isn't known."""
        endpoint = self._verify()
        status, content = self._post(endpoint, msgspec.json.encode(step.arguments))
        if status != 200:
            raise _error(status, content)
        try:
            return msgspec.json.decode(content, type=RebuildDone).done
        except msgspec.DecodeError:
            raise OwnerEnded("the appliance sent an unexpected response") from None

    def _verify(self) -> Endpoint:
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
        connection = discovery.connect(endpoint, _ANSWER_SECONDS_MAX)
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


def _error(status: int, content: bytes) -> ApplianceError:
    if status in (400, 404, 405):
        return OwnerRefused("the running appliance has another version, which can't repair")
    try:
        failure = msgspec.json.decode(content, type=OwnerFailure)
    except msgspec.DecodeError:
        failure = OwnerFailure()
    text = failure.error or f"the appliance responded with status {status}"
    kind = StepFailed if failure.code in _FINAL else OwnerRefused
    return kind(text, hint=failure.hint or STOP)
