"""The inbox's listing of meshes. `queries.py` reads messages."""

from appliance.inbox.model import Profile, ReceivedMessage
from appliance.inbox.queries import MESHES_MAX
from appliance.kernel.model import statement
from appliance.kernel.reader import Reader

_MESHES = statement(ReceivedMessage.select(ReceivedMessage.mesh) | Profile.select(Profile.mesh))


def meshes(reader: Reader) -> list[str]:
    """Return the meshes that have stored rows."""
    return [row[0] for row in reader.rows(_MESHES, limit=MESHES_MAX)]
