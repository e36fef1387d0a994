"""Webhooks of meshes are called by the outbox's target, as those of the hub are."""

from appliance.broker.webhook_caller import Called
from appliance.outbox.target import Later, Refused
from appliance.outbox.webhook import Call, WebhookTarget


class MeshHooks:
    """Webhooks of meshes, called as those of the hub are."""

    def __init__(self, target: WebhookTarget) -> None:
        self._target = target

    @property
    def seconds_max(self) -> float:
        return self._target.attempt_seconds_max

    def check(self, url: str) -> None:
        self._target.check_url(url)

    def call(self, url: str, headers: dict[str, str], body: str) -> Called:
        result = self._target.attempt(Call(url, headers), body)
        if isinstance(result, Later):
            return Called("failed", result.reason, result.retry_after_seconds)
        return Called("gone", result.reason) if isinstance(result, Refused) else Called("delivered")
