"""Implements `agentlip incoming`: signed webhooks from other services."""

from pathlib import Path
from typing import Annotated, Any

import typer

from appliance.cli_support import Session, note, plain, plain_app, read_secret
from appliance.hub.cli_reach import KeyFlag, segment
from appliance.kernel.errors import Invalid

app = plain_app("Signed webhooks from other services.", "Extensions/incoming")
PATH = "/api/v1/incoming"

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the incoming webhook.")]


@app.command("add")
def add_endpoint(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The last part of its path.")],
    template: Annotated[
        str,
        typer.Option(
            "--template",
            help="Sender: `github`, `gitlab`, `alertmanager`, `grafana`, `healthchecks`, `json`.",
        ),
    ],
    topic_id: Annotated[
        str | None,
        typer.Option("--topic-id", help="Topic for its messages, as an id or CHANNEL/TITLE."),
    ] = None,
    stream: Annotated[
        str | None, typer.Option("--stream", help="Courier stream for envelopes instead.")
    ] = None,
    to: Annotated[
        list[str] | None, typer.Option("--to", help="For whom it is; may be repeated.")
    ] = None,
    secret_file: Annotated[
        Path | None, typer.Option("--secret-file", help="File with the sender's secret.")
    ] = None,
    signature_header: Annotated[
        str | None,
        typer.Option("--signature-header", help="Header with the HMAC, for `json`."),
    ] = None,
    idempotency_key: KeyFlag = None,
) -> None:
    """Add an incoming webhook. A generated secret is shown only once.

    Example: agentlip incoming add ci --template github --topic-id general/builds
    """
    body = {
        "name": name, "template": template, "topic_id": topic_id, "stream": stream, "to": to or [],
        "secret": secret_file and read_secret(secret_file),
        "signature_header": signature_header,
    }  # fmt: skip
    answer = session.hub().post(PATH, body, idempotency_key)
    session.answer(answer, f"added {name}; the sender calls {answer['endpoint']['path']}")
    if secret_file is None and not session.machine:
        note("its secret, shown this once:")
        session.answer(answer, answer["secret"])


@app.command("list")
def list_endpoints(session: Session) -> None:
    """List incoming webhooks, without their secrets."""
    rows = session.hub().get(PATH)["endpoints"]
    session.table(
        rows,
        [("NAME", "name"), ("TEMPLATE", "template"), ("TARGET", _target), ("PATH", "path")],
        empty="no incoming webhooks yet; add one with 'agentlip incoming add NAME'",
    )


@app.command("show")
def show_endpoint(session: Session, name: NameArgument) -> None:
    """Show an incoming webhook, without its secret."""
    endpoint = session.hub().get(_path(name))["endpoint"]
    lines = [f"{name}: {endpoint['template']} to {_target(endpoint)}", f"path: {endpoint['path']}"]
    if endpoint["signature_header"]:
        lines.append(f"signature: {endpoint['signature_header']}")
    if endpoint["to"]:
        lines.append("to: " + ", ".join(endpoint["to"]))
    session.answer(endpoint, "\n".join(plain(line) for line in lines))


@app.command("remove")
def remove_endpoint(session: Session, name: NameArgument) -> None:
    """Remove an incoming webhook and its secret."""
    session.answer(session.hub().delete(_path(name)), f"removed {name}")


@app.command("test")
def preview_delivery(
    session: Session,
    name: NameArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A payload that the sender sends.")],
    header: Annotated[
        list[str] | None,
        typer.Option("--header", help="A header, as `NAME: VALUE`; may be repeated."),
    ] = None,
    send: Annotated[bool, typer.Option("--send", help="Also accept the delivery.")] = False,
) -> None:
    """Print the message that a payload becomes, as if the sender had signed it.

    Example: agentlip incoming test ci push.json --header 'X-GitHub-Event: push'
    """
    headers = dict(_header(text) for text in header or [])
    body = {"payload": file.read_text("utf-8"), "headers": headers, "send": send}
    tested = session.hub().post(f"{_path(name)}/test", body, "")
    made = tested.get("accepted") or {}
    id_ = made.get("message_id") or made.get("envelope_id")
    lines = [plain(line) for line in (tested["text"] or "ping: no message").splitlines()]
    session.answer(tested, "\n".join([*lines, *([f"accepted as {id_}"] if id_ else [])]))


def _target(endpoint: Any) -> str:
    return endpoint["topic_id"] or f"stream {endpoint['stream']}"


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise Invalid(f"not a header: {text}", hint="--header 'X-GitHub-Event: push'")
    return name.strip(), value.strip()


def _path(name: str) -> str:
    return f"{PATH}/{segment(name)}"
