"""Clients that send until the appliance is killed under them, and what they were answered."""

import http.client
import itertools
import threading
from collections.abc import Callable
from typing import Any

from tests.support.servedhub import Answer, ServedHub

TOPICS = ("#t0", "#t1", "#t2")
BATCH = 10
END_SECONDS_MAX = 20.0


class SendLoad:
    """Two that send singly and one in batches, from now on, until the connection dies.

    `attempted` and `accepted` are texts by id: whatever was put into a request, and what of it was
    answered with 202 or 200.
    """

    def __init__(self, hub: ServedHub, name: str) -> None:
        self.hub = hub
        self.name = name
        self.accepted: dict[str, str] = {}
        self.attempted: dict[str, str] = {}
        self._wrong: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(work, number), daemon=True)
            for number, work in enumerate((self._singly, self._singly, self._in_batches))
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """To the end of all clients; raises what went wrong beside the kill."""
        for thread in self._threads:
            thread.join(END_SECONDS_MAX)
        assert self._wrong == []

    def _guarded(self, work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except (OSError, http.client.HTTPException):
            return  # it was killed
        except BaseException as error:
            self._wrong.append(error)

    def _send(self, number: int, n: int, index: int = 0) -> dict[str, Any]:
        key = f"{self.name}-{number}-{n}.{index}"
        self.attempted[key] = f"text of {key}"
        to = TOPICS[(n + index) % len(TOPICS)]
        return {"to": to, "message": self.attempted[key], "client_message_id": key}

    def _note(self, status: int, body: Any) -> None:
        assert status in (200, 202), body
        self.accepted[body["client_message_id"]] = self.attempted[body["client_message_id"]]

    def _singly(self, number: int) -> None:
        client = self.hub.connect()
        for n in itertools.count():
            answer: Answer = client.post("/v1/send", self._send(number, n))
            self._note(answer.status, answer.body)

    def _in_batches(self, number: int) -> None:
        client = self.hub.connect()
        for n in itertools.count():
            items = [self._send(number, n, index) for index in range(BATCH)]
            answer = client.post("/v1/send/batch", {"items": items})
            for result in answer.body["results"]:
                self._note(result["status"], result["body"])
