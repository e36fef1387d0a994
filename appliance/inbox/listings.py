"""The inbox's listings: subscribed topics, and meshes. `queries.py` reads messages."""

from appliance.inbox.model import Profile, ReceivedMessage, SubscribedTopic
from appliance.inbox.queries import MESHES_MAX
from appliance.kernel.model import given, statement
from appliance.kernel.reader import Reader

_MESHES = statement(
    ReceivedMessage.select(ReceivedMessage.mesh)
    | SubscribedTopic.select(SubscribedTopic.mesh)
    | Profile.select(Profile.mesh)
)
_TOPICS = statement(
    SubscribedTopic.select(SubscribedTopic.topic, SubscribedTopic.subscribed_at)
    .where(SubscribedTopic.mesh == given("mesh"), SubscribedTopic.topic > given("after"))
    .order_by(SubscribedTopic.topic)
)


def meshes(reader: Reader) -> list[str]:
    """The meshes that rows are stored of."""
    return [row[0] for row in reader.rows(_MESHES, limit=MESHES_MAX)]


def topics(reader: Reader, mesh: str, limit: int, after: str) -> list[tuple[str, int]]:
    """(name, time) in the order of names, after `after`."""
    return reader.rows(_TOPICS, {"mesh": mesh, "after": after}, limit=limit)
