"""Reports a running turn, and keeps the agent's heartbeat and claims on the worker bus."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from appliance.kernel.errors import ApplianceError

BEAT_SECONDS = 20.0  # a claim's default lease is longer
CLAIMS = "/bus/v1/claims"
MESSAGES = "/bus/v1/messages"
HANDOVER = "handover"


class KeptClaims:
    """A context: calls `report`, beats and renews in a thread. A hub without a bus, or a token
    without its scopes, is named once."""

    def __init__(
        self, hub: Any, name: str, say: Callable[[str], None], report: Callable[[], None]
    ) -> None:
        self._hub, self._name, self._say, self._report = hub, name, say, report
        self._has_bus = True
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "KeptClaims":
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._end.set()
        self._thread.join(BEAT_SECONDS)

    def _run(self) -> None:
        while True:
            try:
                self._report()
                if self._has_bus:
                    self._keep()
            except ApplianceError as error:
                if self._has_bus and error.status in (403, 404):
                    self._say(f"claims on the bus are not kept: {error.message}")
                    self._has_bus = False
            if self._end.wait(BEAT_SECONDS):
                return

    def _keep(self) -> None:
        beat = {"agent": self._name, "status": "working"}
        self._hub.post("/bus/v1/heartbeats", beat, None)
        for claim in _claims_of(self._hub, self._name):
            self._hub.post(f"{CLAIMS}/renew", claim, None)


def release_all(hub: Any, name: str, successor: str | None = None) -> int:
    """Release the agent's claims; return how many. A successor gets a bus message about each claim,
    and can claim the task next."""
    claims = _claims_of(hub, name)
    for claim in claims:
        hub.post(f"{CLAIMS}/release", claim, None)
        if successor is not None:
            handover = {"type": HANDOVER, "from_agent": name, "to_agent": successor}
            hub.post(MESSAGES, {**handover, "correlation_id": claim["task"]}, None)
    return len(claims)


def _claims_of(hub: Any, name: str) -> list[dict[str, Any]]:
    return [
        {"task": claim["task_id"], "agent": name, "fence": claim["fence"]}
        for claim in hub.get(CLAIMS)["claims"]
        if claim["claimed_by"] == name
    ]
