"""Joins the brokers that the inbox and outbox settings declare."""

from collections.abc import Sequence

from appliance.inbox.settings import InboxSettings
from appliance.inbox.wire import NETWORK
from appliance.kernel.config import BadSettings
from appliance.mesh.broker_endpoint import BrokerEndpoint


def brokers_of(
    settings: InboxSettings, outbox_brokers: Sequence[BrokerEndpoint]
) -> dict[str, BrokerEndpoint]:
    """Return each mesh's broker. Raises BadSettings if a mesh has two different ones."""
    brokers: dict[str, BrokerEndpoint] = {}
    meshes = [endpoint.mesh for endpoint in outbox_brokers]
    if twice := [mesh for mesh in meshes if meshes.count(mesh) > 1]:
        raise BadSettings(f"settings: outbox.brokers: mesh {twice[0]} has two brokers")
    for endpoint in (*outbox_brokers, *settings.brokers):
        if endpoint.mesh == NETWORK:
            raise BadSettings("settings: inbox.brokers: the mesh 'network' is reserved")
        other = brokers.setdefault(endpoint.mesh, endpoint)
        if other != endpoint:
            raise BadSettings(
                f"settings: inbox.brokers: mesh {endpoint.mesh} has two different brokers"
            )
    return brokers
