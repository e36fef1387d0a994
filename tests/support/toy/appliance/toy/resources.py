"""Notes over HTTP."""

from typing import Any

import falcon
from appliance.toy import wire
from appliance.toy.service import Toy

from appliance.kernel.route import Operation, Route
from appliance.web.media import reply


class NotesResource:
    def __init__(self, toy: Toy) -> None:
        self._toy = toy

    def on_get(self, _req: Any, resp: falcon.Response) -> None:
        reply(resp, self._toy.notes())

    def on_post(self, _req: Any, resp: falcon.Response, command: wire.AddNote) -> None:
        self._toy.add(command)
        reply(resp, self._toy.notes(), 201)


class NoticesResource:
    def __init__(self, toy: Toy) -> None:
        self._toy = toy

    def on_get(self, _req: Any, resp: falcon.Response) -> None:
        reply(resp, self._toy.notices())


def routes(toy: Toy) -> list[Route]:
    return [
        Route("/toy/v1/notes", NotesResource(toy), {
            "GET": Operation(wire.READ, reply=wire.Notes, summary="All notes"),
            "POST": Operation(wire.WRITE, body=wire.AddNote, reply=wire.Notes, status=201,
                              errors=(wire.TooManyNotes,), summary="Add a note"),
        }),
        Route("/toy/v1/notices", NoticesResource(toy), {
            "GET": Operation(wire.READ, reply=wire.Notes, summary="All notices"),
        }),
    ]  # fmt: skip
