"""Real history posted to an appliance in a container, and in part edited, moved and deleted.

Posted messages, their state in the API, and their events are kept apart, so that tables made of
the exported log can be compared with each of them.
"""

from collections import Counter
from datetime import datetime
from itertools import islice
from typing import Any

from tests.system.box import Box
from tests.system.checkout import ROOT
from tests.system.history import PastMessage, changelogs, commits

BATCH = 100
PAGE = 1000
Event = dict[str, Any]


class Conversation:
    """The history of this machine, a channel for each source, as far as they were posted.

    `posted` counts messages by channel, topic and sender as they were sent.
    """

    def __init__(self, box: Box) -> None:
        self._box = box
        self._feeds = {"git": iter(commits(ROOT)), "debian": iter(changelogs())}
        self._channels: dict[str, str] = {}
        self._topics: dict[tuple[str, str], str] = {}
        self._alive: dict[str, list[str]] = {"git": [], "debian": []}
        self.posted: Counter[tuple[str, str, str]] = Counter()

    def tell(self, count: int) -> "Conversation":
        """So many messages more: half from each feed, more of one where the other is short."""
        git = list(islice(self._feeds["git"], count // 2))
        self._tell("git", git)
        self._tell("debian", list(islice(self._feeds["debian"], count - len(git))))
        return self

    def _tell(self, name: str, entries: list[PastMessage]) -> None:
        messages = [
            {"topic_id": self._topic(name, entry.topic), "sender": entry.sender,
             "content_raw": entry.content}
            for entry in entries
        ]  # fmt: skip
        for start in range(0, len(messages), BATCH):
            body = {"messages": messages[start : start + BATCH]}
            reply = self._sent("POST", "/api/v1/messages/batch", body, 200)
            self._alive[name] += [entry["message"]["id"] for entry in reply["results"]]
        self.posted.update((name, each.topic, each.sender) for each in entries)
        if entries:
            self._change(self._alive[name], self._topic(name, entries[-1].topic))

    def _change(self, alive: list[str], target: str) -> None:
        """Edits, moves and deletes some of all messages so far."""
        edit = {"op": "edit", "content_raw": f"edited when there were {len(alive)}"}
        move = {"op": "move_topic", "to_topic_id": target, "mode": "one"}
        for body, step in ((edit, 7), (move, 19), ({"op": "delete", "actor": "tester"}, 31)):
            for message in alive[::step]:
                self._sent("PATCH", f"/api/v1/messages/{message}", body, 200)
        del alive[::31]

    def _topic(self, name: str, title: str) -> str:
        if name not in self._channels:
            made = self._made("/api/v1/channels", {"name": name})
            self._channels[name] = made["channel"]["id"]
        if (name, title) not in self._topics:
            body = {"channel_id": self._channels[name], "title": title}
            self._topics[name, title] = self._made("/api/v1/topics", body)["topic"]["id"]
        return self._topics[name, title]

    # -- as the API returns it ---------------------------------------------------------------

    def events(self) -> list[Event]:
        result: list[Event] = []
        after = 0
        while page := self._got(f"/api/v1/events?after={after}&limit={PAGE}")["events"]:
            result += page
            after = page[-1]["event_id"]
        return result

    def messages(self) -> dict[str, tuple[Any, ...]]:
        """Each message as it is now: topic, version, sender, content, and whether it is deleted."""
        result = {}
        for channel in self._channels.values():
            before, more = "", True
            while more:
                page = self._got(f"/api/v1/messages?channel_id={channel}&limit={PAGE}{before}")
                for entry in page["messages"]:
                    result[entry["id"]] = (
                        entry["topic_id"], entry["version"], entry["sender"], entry["content_raw"],
                        entry["deleted_at"] is not None,
                    )  # fmt: skip
                more, before = page["has_more"], f"&before_id={page['cursor']}"
        return result

    def exported(self) -> int:
        """The newest event that the appliance offers in a segment."""
        after, more = 0, True
        while more:
            page = self._got(f"/api/v1/segments?after={after}&limit={PAGE}")
            after, more = page["next"], page["has_more"]
        return int(after)

    def reader_token(self) -> str:
        body = {"name": "spark", "scopes": ["export:read"]}
        return str(self._made("/api/v1/tokens", body)["secret"])

    # -- requests ----------------------------------------------------------------------------

    def _got(self, path: str) -> Any:
        return self._sent("GET", path, None, 200)

    def _made(self, path: str, body: Any) -> Any:
        return self._sent("POST", path, body, 201)

    def _sent(self, method: str, path: str, body: Any, expect: int) -> Any:
        status, reply = self._box.request(method, path, body)
        assert status == expect, reply
        return reply


def time_of(event: Event) -> datetime:
    return datetime.fromisoformat(event["ts"])
