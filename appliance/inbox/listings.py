"""The inbox's listings: topics that this appliance subscribed to, and meshes.

Messages are in `queries.py`: agents poll for them.
"""

from appliance.inbox.model import Message, Profile, Topic
from appliance.inbox.queries import MESHES_MAX
from appliance.kernel.model import given, statement
from appliance.kernel.reader import Reader

_MESHES = statement(
    Message.select(Message.mesh) | Topic.select(Topic.mesh) | Profile.select(Profile.mesh)
)
_TOPICS = statement(
    Topic.select(Topic.topic, Topic.subscribed_at)
    .where(Topic.mesh == given("mesh"), Topic.topic > given("after"))
    .order_by(Topic.topic)
)


def meshes(reader: Reader) -> list[str]:
    """Those that something is stored of."""
    return [row[0] for row in reader.rows(_MESHES, limit=MESHES_MAX)]


def topics(reader: Reader, mesh: str, limit: int, after: str = "") -> list[tuple[str, int]]:
    """By name, behind `after`."""
    return reader.rows(_TOPICS, {"mesh": mesh, "after": after}, limit=limit)
