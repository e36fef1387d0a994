"""An example resource with its routes, for tests of `appliance/web`."""

import json
from collections.abc import Iterator
from typing import Annotated, Any

import falcon
import msgspec

from appliance.kernel.errors import Conflict
from appliance.kernel.route import OPEN, Operation, Route
from appliance.web.body import check_text
from appliance.web.media import reply
from tests.support.http import TOKEN, Client, app_of

JSON = {"Content-Type": "application/json"}


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    size: int = 0
    tags: list[str] = []


class Edit(msgspec.Struct, frozen=True, tag_field="op", tag="edit"):
    text: str


class Delete(msgspec.Struct, frozen=True, tag_field="op", tag="delete"):
    actor: str


class Notes(msgspec.Struct, frozen=True):
    notes: list[Note]


class ListNotes(msgspec.Struct, frozen=True):
    limit: Annotated[int, msgspec.Meta(ge=1)] = 50
    after: int = 0
    tag: list[str] = []
    name: str | None = None
    tail: bool = False


class Taken(Conflict):
    code = "NOTE_TAKEN"
    default_message = "that note is taken"
    default_hint = "choose another"


class Stream:
    """A streamed reply that knows whether it was ended."""

    def __init__(self) -> None:
        self.closed = 0

    def __iter__(self) -> Iterator[bytes]:
        yield b"one"
        yield b"two"

    def close(self) -> None:
        self.closed += 1


class NoteResource:
    """Keeps the last command, and fails on request."""

    def __init__(self) -> None:
        self.seen: Any = None
        self.stream = Stream()

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        self.seen = req.context.query
        reply(resp, {"limit": min(req.context.query.limit, 100)})

    def on_post(self, req: falcon.Request, resp: falcon.Response, command: Note) -> None:
        self.seen = command
        check_text(command.text, "text")
        match command.text:
            case "taken":
                raise Taken(extra={"current_version": 4, "code": "FORGED"})
            case "fault":
                raise RuntimeError("a secret in the exception's text")
        reply(resp, {"key": req.context.idempotency_key, "by": req.context.principal.id}, 201)

    def on_get_item(self, req: falcon.Request, resp: falcon.Response, note_id: str) -> None:
        reply(resp, {"id": note_id})

    def on_patch_item(
        self, req: falcon.Request, resp: falcon.Response, note_id: str, command: Edit | Delete
    ) -> None:
        self.seen = command
        reply(resp, {"id": note_id})

    def on_post_batch(self, req: falcon.Request, resp: falcon.Response, command: Notes) -> None:
        reply(resp, {"count": len(command.notes)})

    def on_get_stream(self, req: falcon.Request, resp: falcon.Response) -> None:
        resp.stream = self.stream = Stream()

    def on_get_open(self, req: falcon.Request, resp: falcon.Response) -> None:
        reply(resp, {"up": True})


def note_routes(resource: NoteResource) -> list[Route]:
    return [
        Route(
            "/notes",
            resource,
            {
                "GET": Operation("hub:read", "list", query=ListNotes),
                "POST": Operation("hub:post", "create", body=Note, status=201, keyed=True),
            },
        ),
        Route(
            "/notes/{note_id}",
            resource,
            {
                "GET": Operation("hub:read", "one"),
                "PATCH": Operation("hub:post", "change", body=Edit | Delete, keyed=True),
            },
            suffix="item",
        ),
        Route(
            "/batch",
            resource,
            {
                "POST": Operation(
                    "hub:post", "many", body=Notes, batch=True, cost=lambda c: len(c.notes)
                )
            },
            suffix="batch",
        ),
        Route(
            "/notes.stream",
            resource,
            {"GET": Operation("hub:read", "as they come", media="text/plain")},
            suffix="stream",
        ),
        Route("/-/up", resource, {"GET": Operation(OPEN, "up", probe=True)}, suffix="open"),
    ]


def client(resource: NoteResource, token: str | None = TOKEN, **more: Any) -> Client:
    peer = {name: more.pop(name) for name in ("host", "address", "port") if name in more}
    return Client(app_of(note_routes(resource), **more), token, **peer)


def post(
    to: Client, body: bytes | Any, path: str = "/notes", headers: Any = JSON
) -> falcon.testing.Result:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return to.simulate_post(path, body=raw, headers=headers)


def assert_failure(result: Any, status: int, code: str) -> dict[str, Any]:
    shown = result.json
    assert (result.status_code, shown["code"]) == (status, code), shown
    assert {"error", "code", "details", "hint", "request_id"} <= set(shown)
    assert isinstance(shown["error"], str)
    assert shown["error"]
    assert isinstance(shown["details"], dict)
    assert shown["request_id"] == result.headers["x-request-id"]
    assert result.headers["content-type"] == "application/json"
    return dict(shown)
