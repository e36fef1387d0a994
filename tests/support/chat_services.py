"""Chat and push services, as far as they document what they accept and how they refuse."""

import json
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.http_server import HttpRequest, Reply

WAIT_SECONDS = 60
JSON_TYPE = "application/json"


class Refused(Exception):
    """With the status and the body of the service's reply."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(status, body)
        self.status, self.body = status, body


def require(condition: object, status: int, body: Any) -> None:
    if not condition:
        raise Refused(status, body)


def fields_of(request: HttpRequest, refusal: Any) -> dict[str, Any]:
    """The fields of a JSON object."""
    require(request.headers.get("content-type", "").startswith(JSON_TYPE), 400, refusal)
    try:
        fields = json.loads(request.body)
    except ValueError:
        fields = None
    require(isinstance(fields, dict), 400, refusal)
    assert isinstance(fields, dict)
    return fields


def discord(request: HttpRequest) -> str:
    """`content` has 2,000 characters at most. Unknown fields are ignored."""
    empty = {"message": "Cannot send an empty message", "code": 50006}
    content = fields_of(request, {"message": "400: Bad Request", "code": 0}).get("content")
    require(content, 400, empty)
    text = str(content)
    require(len(text) <= 2000, 400, {"code": 50035, "message": "Invalid Form Body"})
    return text


def slack(request: HttpRequest) -> str:
    text = fields_of(request, "invalid_payload").get("text")
    require(text, 400, "no_text")
    require(len(str(text)) <= 40_000, 400, "msg_too_long")
    return str(text)


def google_chat(request: HttpRequest) -> str:
    fields = fields_of(request, {"error": {"code": 400, "status": "INVALID_ARGUMENT"}})
    for name in fields.keys() - {"text", "cardsV2", "thread"}:
        message = f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
        raise Refused(400, {"error": {"code": 400, "message": message}})
    text = str(fields.get("text", ""))
    require(0 < len(text) <= 4096, 400, {"error": {"code": 400, "message": "text"}})
    return text


def teams(request: HttpRequest) -> str:
    """A workflow that is started by a webhook; a message has 28 KB at most."""
    require(len(request.body) <= 28 * 1024, 413, "RequestEntityTooLarge")
    fields = fields_of(request, {"error": {"code": "InvalidRequestContent"}})
    wrong = {"error": {"code": "TriggerInputSchemaMismatch"}}
    require(fields.get("type") == "message", 400, wrong)
    (card,) = fields.get("attachments") or [{}]
    kind = "application/vnd.microsoft.card.adaptive"
    require(card.get("contentType") == kind, 400, wrong)
    content = card["content"]
    require(content["type"] == "AdaptiveCard" and content["version"], 400, wrong)
    blocks = content["body"]
    require(all(block["type"] == "TextBlock" for block in blocks), 400, wrong)
    return "\n".join(block["text"] for block in blocks)


def gotify(request: HttpRequest) -> str:
    parts = urlsplit(request.path)
    token = parse_qs(parts.query).get("token") == ["A1"] or request.headers.get("x-gotify-key")
    require(token, 401, {"error": "Unauthorized", "errorCode": 401})
    require(parts.path == "/message", 404, {"error": "Not Found", "errorCode": 404})
    fields = fields_of(request, {"error": "Bad Request", "errorCode": 400})
    missing = {"error": "Bad Request", "errorDescription": "Field 'message' is required"}
    require(fields.get("message"), 400, missing)
    require(isinstance(fields.get("priority", 0), int), 400, missing)
    return f"{fields.get('title')}\n{fields['message']}"


def ntfy(request: HttpRequest) -> str:
    """JSON goes to the root; a message above 4,096 bytes becomes an attachment. The body of a
    request to a topic is a message as it is."""
    if urlsplit(request.path).path != "/":
        return request.body.decode()
    fields = fields_of(request, {"code": 40024, "error": "invalid request: body must be JSON"})
    topic = str(fields.get("topic", ""))
    named = 0 < len(topic) <= 64 and topic.replace("_", "").replace("-", "").isalnum()
    require(named, 400, {"code": 40009, "error": "invalid request: topic invalid"})
    message = str(fields.get("message", ""))
    require(len(message.encode()) <= 4096, 413, {"code": 41301})
    return f"{fields.get('title')}\n{message}"


def telegram(request: HttpRequest) -> str:
    require(urlsplit(request.path).path == "/bot1:A/sendMessage", 404, {"ok": False})
    bad = {"ok": False, "error_code": 400, "description": "Bad Request: message text is empty"}
    fields = fields_of(request, bad)
    require(fields.get("chat_id"), 400, bad | {"description": "Bad Request: chat_id is empty"})
    text = str(fields.get("text", ""))
    require(text, 400, bad)
    require(len(text) <= 4096, 400, bad | {"description": "Bad Request: message is too long"})
    return text


def pushover(request: HttpRequest) -> str:
    form = "application/x-www-form-urlencoded"
    require(request.headers.get("content-type") == form, 400, {"status": 0, "errors": ["form"]})
    fields = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
    for name, value in (("token", "T1"), ("user", "U1")):
        require(fields.get(name) == value, 400, {"status": 0, "errors": [f"{name} is invalid"]})
    message, title = fields.get("message", ""), fields.get("title", "")
    require(message, 400, {"status": 0, "errors": ["message cannot be blank"]})
    require(len(message) <= 1024, 400, {"status": 0, "errors": ["message is too long"]})
    require(len(title) <= 250, 400, {"status": 0, "errors": ["title is too long"]})
    return f"{title}\n{message}"


SERVICES: dict[str, tuple[Callable[[HttpRequest], str], str]] = {
    "discord": (discord, "/api/webhooks/1/abc"),
    "slack": (slack, "/services/T0/B0/x"),
    "googlechat": (google_chat, "/v1/spaces/A/messages?key=k&token=t"),
    "teams": (teams, "/workflows/abc/triggers/manual/paths/invoke?sig=s"),
    "gotify": (gotify, "/message?token=A1"),
    "ntfy": (ntfy, "/alerts"),
    "telegram": (telegram, "/bot1:A/sendMessage?chat_id=-100"),
    "pushover": (pushover, "/1/messages.json?token=T1&user=U1"),
}
"""By format: what the service shows of a request, or how it refuses it; and its path."""


class ChatService:
    """`shown`: the texts that arrived. It replies once `reply_after` is set, if there is one."""

    def __init__(self, name: str) -> None:
        self._accept, self.path = SERVICES[name]
        self.shown: list[str] = []
        self.statuses: list[int] = []
        self.reply_after: threading.Event | None = None

    def reply(self, request: HttpRequest) -> Reply:
        if self.reply_after is not None:
            self.reply_after.wait(WAIT_SECONDS)
        try:
            self.shown.append(self._accept(request))
        except Refused as refused:
            self.statuses.append(refused.status)
            return refused.status, {"Content-Type": JSON_TYPE}, json.dumps(refused.body).encode()
        self.statuses.append(200)
        return 200, {}, b"ok"
