"""Posts operator messages and job outcomes into hub topics."""

import msgspec

from appliance.hub import wire
from appliance.hub.access import POST
from appliance.hub.service import Hub
from appliance.kernel.auth import Principal
from appliance.operations.notify import NoticeSender
from appliance.operations.wire import Notice, Via


class HubTopics:
    def __init__(self, hub: Hub, sender: str) -> None:
        self._hub = hub
        self._sender = sender
        name = f"appliance:{sender}"  # no token has this name
        self._principal = Principal(name, name, frozenset({POST}))

    def post(self, key: str, topic: str, text: str, principal: str | None = None) -> None:
        """Post once for each key, under the name `principal` if given."""
        command = wire.CreateMessage(topic, self._sender, text)
        who = self._principal
        if principal is not None:
            who = msgspec.structs.replace(who, name=principal)
        self._hub.create_message(command, who, key)


class TopicNotices(NoticeSender):
    """Posts notices into a topic. A post is durable and visible at once."""

    def __init__(self, topics: HubTopics) -> None:
        self._topics = topics

    def send(self, to: str, notice: Notice, *, direct: bool) -> Via:
        del direct
        text = f"{notice.subject}\n\n{notice.text}"
        self._topics.post(notice.id_for(to), to.removeprefix("topic:"), text)
        return "hub"
