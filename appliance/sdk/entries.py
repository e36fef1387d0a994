"""The client's verbs for a name's inbox: list, acknowledge, decline, follow, and receipts."""

from collections.abc import Generator

from appliance.sdk import models
from appliance.sdk.calls import HubCalls
from appliance.sdk.http import REQUEST_WAIT_SECONDS_MAX
from appliance.sdk.paths import message_path


class EntryVerbs(HubCalls):
    """Verbs for the inbox of a name. Without a name, the token's own."""

    def list_entries(
        self,
        name: str | None = None,
        *,
        after: int = 0,
        settled: bool = False,
        limit: int = 50,
        wait_seconds: float = 0.0,
        peek: bool = False,
    ) -> models.EntryPage:
        """Return waiting inbox entries, oldest first, and note each as listed. `wait_seconds`: how
        long an empty inbox waits for an entry."""
        return self._get(
            "/api/v1/inbox", models.EntryPage, None, name=name, after=after,
            settled="true" if settled else None, limit=limit, wait=wait_seconds,
            peek="true" if peek else None,
        )  # fmt: skip

    def entries(self, name: str | None = None) -> Generator[models.Entry]:
        """Yield waiting and new entries until `close`, also through restarts. Entries without an
        acknowledgement come again in the next iteration."""
        after = 0
        while not self._hubs.closed:
            page = self.list_entries(name, after=after, wait_seconds=REQUEST_WAIT_SECONDS_MAX)
            yield from page.entries
            after = page.next

    def acknowledge_entries(
        self, *ids: int, name: str | None = None, key: str | None = None
    ) -> models.Settled:
        """Acknowledge handled entries: all, or none if one is unknown or declined."""
        body = {"ids": ids, "name": name}
        return self._post("/api/v1/inbox/acknowledge", body, key, models.Settled)

    def acknowledge_range(
        self, first: int, last: int, *, name: str | None = None, key: str | None = None
    ) -> models.Settled:
        """Acknowledge the entries from `first` to `last`. Raises Refused with the code NOT_LISTED
        for a range with entries that were never listed."""
        body = {"first": first, "last": last, "name": name}
        return self._post("/api/v1/inbox/acknowledge", body, key, models.Settled)

    def decline_entry(
        self, entry_id: int, reason: str, *, name: str | None = None, key: str | None = None
    ) -> models.Settled:
        """Refuse an entry; the sender sees the reason."""
        body = {"id": entry_id, "reason": reason, "name": name}
        return self._post("/api/v1/inbox/decline", body, key, models.Settled)

    def receipts(self, message_id: str) -> list[models.MessageReceipt]:
        """Return what became of a message, recipient by recipient."""
        path = f"{message_path(message_id)}/receipts"
        return self._get(path, list[models.MessageReceipt], "receipts")

    def follow_topic(
        self, topic_id: str, name: str | None = None, *, key: str | None = None
    ) -> models.Followed:
        """Make each later message in a topic an inbox entry."""
        path = f"{self._topic(topic_id)}/follow"
        return self._post(path, {"name": name}, key, models.Followed)

    def unfollow_topic(
        self, topic_id: str, name: str | None = None, *, key: str | None = None
    ) -> models.Followed:
        """Stop following a topic."""
        path = f"{self._topic(topic_id)}/unfollow"
        return self._post(path, {"name": name}, key, models.Followed)
