"""`agentlip outbox send`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from appliance.cli_support import Session, text_of
from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import Invalid
from appliance.kernel.ids import IdFactory

MESSAGE_BYTES_MAX = 1024 * 1024


def send(
    session: Session,
    to: Annotated[
        str,
        typer.Argument(
            metavar="TO",
            help="'#TOPIC', a member's public key, 'queue:ID', 'mailto:ADDRESS', 'network:NAME'.",
        ),
    ],
    message: Annotated[
        str | None,
        typer.Argument(
            metavar="MESSAGE", help="Text; without it or with '-', read from standard input."
        ),
    ] = None,
    priority: Annotated[
        str, typer.Option("--priority", help="Priority: now, next or low.")
    ] = "next",
    meta: Annotated[
        str | None, typer.Option("--meta", help="Metadata as JSON object or @FILE.")
    ] = None,
    reply_to: Annotated[
        str | None, typer.Option("--reply-to", help="The message that this one replies to, by id.")
    ] = None,
    client_message_id: Annotated[
        str | None, typer.Option("--id", help="client_message_id; the same id is never sent twice.")
    ] = None,
    mesh: Annotated[
        str | None, typer.Option("--mesh", help="Mesh to send to (default: outbox.mesh).")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="Delivery target (default: broker, or mail for mailto:)."),
    ] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Mail subject.")] = None,
) -> None:
    """Send a message to a mesh or a mail address. The message is stored durably when the command
    returns.

    Other commands that send: agentlip msg send posts to a topic of this hub; agentlip courier
    enqueue gives work to consumers.

    Example: agentlip outbox send '#alerts' 'build done' --priority now
    """
    fields = None if meta is None else json_object(meta, "--meta")
    if subject is not None:
        fields = {**(fields or {}), "subject": subject}
    text = text_of("-" if message is None else message, MESSAGE_BYTES_MAX)
    body = {
        "to": to, "message": text, "priority": priority, "replyToId": reply_to, "mesh": mesh,
        "target": target, "meta": fields,
    }  # fmt: skip
    key = client_message_id or IdFactory(SystemClock()).new("")
    answer = session.hub().post("/v1/send", body, key)
    if answer.get("duplicate"):
        status = f"already delivered as {answer['broker_message_id']}"
    else:
        status = answer["status"]
    session.answer(answer, f"{status}: {answer['client_message_id']}")


def json_object(text: str, flag: str) -> dict[str, Any]:
    """Return the JSON object in `text`, or with @FILE in that file."""
    import msgspec

    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise Invalid(f"{flag}: can't read the file: {reason}") from None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        raise Invalid(f"{flag} must be a JSON object") from None
