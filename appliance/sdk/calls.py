"""Sends a client's requests, for all its groups of verbs."""

from typing import Any, TypeVar

import msgspec

from appliance.sdk.catalogue import topic_id_of
from appliance.sdk.closing import Closing
from appliance.sdk.http import HubConnections, Json
from appliance.sdk.paths import path_segment

T = TypeVar("T")


class HubCalls(Closing):
    """A client's connections and requests."""

    _hubs: HubConnections

    def _get(self, path: str, reply: type[T], field: str | None, /, **query: Any) -> T:
        with self._hubs.lend() as hub:
            answer = hub.get(path, **query)
        return msgspec.convert(answer if field is None else answer[field], reply)

    def _post(self, path: str, body: Json, key: str | None, kind: type[T]) -> T:
        with self._hubs.lend() as hub:
            return msgspec.convert(hub.post(path, body, key), kind)

    def _patch(self, path: str, body: Json, key: str | None, kind: type[T]) -> T:
        with self._hubs.lend() as hub:
            return msgspec.convert(hub.patch(path, body, key), kind)

    def _topic(self, reference: str) -> str:
        """Return a topic's path. A path can't contain the `/` in a name, so names are looked up."""
        with self._hubs.lend() as hub:
            return f"/api/v1/topics/{path_segment(topic_id_of(hub, reference))}"
