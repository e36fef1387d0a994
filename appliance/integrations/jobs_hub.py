"""Outcomes of jobs that are posted to topics of the hub."""

from appliance.hub import wire
from appliance.hub.access import POST
from appliance.hub.service import Hub
from appliance.kernel.auth import Principal

SENDER = "jobs"
PRINCIPAL = Principal("appliance:jobs", "appliance:jobs", frozenset({POST}))


class HubJobTopics:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def post(self, run_id: str, topic: str, text: str) -> None:
        command = wire.CreateMessage(topic, SENDER, text)
        self._hub.create_message(command, PRINCIPAL, run_id)
