"""Asks people whether a topic that agents filled may go on."""

from appliance.hub.ask import wire
from appliance.hub.ask.own_asks import OwnAsks
from appliance.hub.bounds.service import CONTINUE, KEEP
from appliance.kernel.pauses import StoredPause


class HubTopicAsks(OwnAsks):
    sender = "bounds"

    def ask(self, pause: StoredPause) -> str:
        topic = pause.topic or pause.subject
        text = f"The topic {topic} is paused: {pause.reason}. Continue?"
        blocks = [f"topic {topic}"[:200]]
        command = wire.CreateAsk(text, self.sender, [CONTINUE, KEEP], blocks=blocks)
        return self._create(command, f"pause-{pause.id}").id
