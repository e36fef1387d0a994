"""The client's verbs for catching up: topic states, handoff notes, pins."""

from appliance.sdk import models
from appliance.sdk.calls import HubCalls
from appliance.sdk.paths import message_path


class CatchUpVerbs(HubCalls):
    """Verbs for an agent that was away. Without a name, the token's own."""

    def catch_up(
        self, name: str | None = None, *, since: int = 0, tokens: int = 2000
    ) -> models.CatchUp:
        """Return what waits for a name, the most urgent first; `text` is never longer than
        `tokens`. Pass `next` as `since` the next time."""
        return self._get(
            "/api/v1/catch-up", models.CatchUp, None, name=name, since=since, tokens=tokens
        )

    def topic_state(self, topic_id: str) -> models.TopicStateShown:
        """Return whether a topic is resolved, and its handoff note."""
        return self._get(f"{self._topic(topic_id)}/state", models.TopicStateShown, None)

    def resolve_topic(
        self, topic_id: str, note: str, *, name: str | None = None, key: str | None = None
    ) -> models.TopicStateChanged:
        """Resolve a topic, with a note."""
        body = {"note": note, "name": name}
        return self._post(f"{self._topic(topic_id)}/resolve", body, key, models.TopicStateChanged)

    def reopen_topic(
        self, topic_id: str, note: str, *, name: str | None = None, key: str | None = None
    ) -> models.TopicStateChanged:
        """Reopen a resolved topic, with a note."""
        body = {"note": note, "name": name}
        return self._post(f"{self._topic(topic_id)}/reopen", body, key, models.TopicStateChanged)

    def write_handoff(
        self,
        topic_id: str,
        note: str,
        expected_version: int = 0,
        *,
        up_to_event: int | None = None,
        name: str | None = None,
        key: str | None = None,
    ) -> models.TopicStateChanged:
        """Replace a topic's handoff note. Raises VersionConflict if it has another version than
        expected."""
        body = {
            "note": note, "expected_version": expected_version, "up_to_event": up_to_event,
            "name": name,
        }  # fmt: skip
        return self._post(f"{self._topic(topic_id)}/handoff", body, key, models.TopicStateChanged)

    def pin_message(
        self, message_id: str, *, name: str | None = None, key: str | None = None
    ) -> models.PinChanged:
        """Pin a message in its channel."""
        return self._post(f"{message_path(message_id)}/pin", {"name": name}, key, models.PinChanged)

    def unpin_message(
        self, message_id: str, *, name: str | None = None, key: str | None = None
    ) -> models.PinChanged:
        """Unpin a message."""
        path = f"{message_path(message_id)}/unpin"
        return self._post(path, {"name": name}, key, models.PinChanged)

    def list_pins(
        self, channel_id: str | None = None, limit: int = 50
    ) -> list[models.PinnedMessage]:
        """Return pinned messages, the last pinned first."""
        return self._get(
            "/api/v1/pins", list[models.PinnedMessage], "pins", channel_id=channel_id, limit=limit
        )
