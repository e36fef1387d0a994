"""`agentlip outbox send`: one message into the outbox."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from appliance.cli_support import Session, common
from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import Invalid
from appliance.kernel.ids import IdFactory

MESSAGE_BYTES_MAX = 1024 * 1024


@common
def send(
    session: Session,
    to: Annotated[
        str,
        typer.Argument(
            metavar="TO", help="'#topic', a member's public key, 'queue:ID', or 'mailto:ADDRESS'."
        ),
    ],
    message: Annotated[
        str | None, typer.Argument(metavar="MESSAGE", help="Its text; '-' or nothing: from stdin.")
    ] = None,
    priority: Annotated[str, typer.Option("--priority", help="now, next or low.")] = "next",
    meta: Annotated[str | None, typer.Option("--meta", help="A JSON object beside it.")] = None,
    reply_to: Annotated[
        str | None, typer.Option("--reply-to", help="Id of the message it answers.")
    ] = None,
    client_message_id: Annotated[
        str | None, typer.Option("--id", help="Its id; the same again is never sent twice.")
    ] = None,
    mesh: Annotated[str | None, typer.Option("--mesh", help="The mesh it goes to.")] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="What delivers it (default: a broker, or mail).")
    ] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Of a mail.")] = None,
) -> None:
    """Send a message to a mesh or a mail address: stored when this returns, delivered once.

    Other ways of sending: agentlip msg send posts to a topic of this hub; agentlip courier enqueue
    hands work to consumers; agentlip broker accept tries a mesh out, without the outbox.

    Example: agentlip outbox send '#alerts' 'build done' --priority now
    """
    body: dict[str, Any] = {"to": to, "message": _text(message), "priority": priority}
    beside = _object(meta)
    if subject is not None:
        beside = {**(beside or {}), "subject": subject}
    given = {"replyToId": reply_to, "mesh": mesh, "target": target, "meta": beside}
    body |= {name: value for name, value in given.items() if value is not None}
    from appliance.sdk.discovery import find_hub
    from appliance.sdk.http import HubClient

    key = client_message_id or IdFactory(SystemClock()).new("")
    answer = HubClient(lambda: find_hub(session.workspace)).post("/v1/send", body, key)
    if answer.get("duplicate"):
        told = f"delivered before as {answer['broker_message_id']}"
    else:
        told = answer["status"]
    session.answer(answer, f"{told}: {answer['client_message_id']}")


def _text(message: str | None) -> str:
    if message is not None and message != "-":
        return message
    raw = sys.stdin.buffer.read(MESSAGE_BYTES_MAX + 1)
    if len(raw) > MESSAGE_BYTES_MAX:
        raise Invalid(f"more than {MESSAGE_BYTES_MAX} bytes on standard input")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Invalid("standard input is not UTF-8") from None


def _object(text: str | None) -> dict[str, Any] | None:
    return None if text is None else json_object(text, "--meta")


def json_object(text: str, flag: str) -> dict[str, Any]:
    """The JSON object in `text`, or in the file after an @."""
    import msgspec

    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(f"{flag}: can't read the file: {error}") from None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        raise Invalid(f"{flag} wants a JSON object") from None
