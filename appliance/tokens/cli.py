"""`agentlip token`: through the hub that runs here, or on its file while none does."""

import os
from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Session, common, note, plain_app
from appliance.kernel.errors import Invalid
from appliance.tokens import wire

app = plain_app("Tokens: who may come in. 'server' is the workspace's own.")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the token.")]
PATH = "/api/v1/tokens"


@app.command("create")
@common
def create_token(
    session: Session,
    name: Annotated[str, typer.Option("--name", help="Whose it is; one in force a name.")],
    scope: Annotated[
        list[str], typer.Option("--scope", help="hub:read, hub:post, admin, …; may be repeated.")
    ],
    channel: Annotated[
        list[str] | None,
        typer.Option("--channel", help="Only in this channel (name or id); may be repeated."),
    ] = None,
    sender: Annotated[
        list[str] | None,
        typer.Option(
            "--sender", help="Allow only this sender name; may be repeated (default: any)."
        ),
    ] = None,
    expires: Annotated[
        float | None, typer.Option("--expires", metavar="DAYS", help="Over after so many days.")
    ] = None,
) -> None:
    """Issue a token. Its secret is shown this once."""
    body = {
        "name": name,
        "scopes": _limited(session, scope, channel or []),
        "expires_days": expires,
    }
    if sender:
        body["senders"] = sender
    answer = _ask(session, "create", PATH, body)
    _show_secret(session, answer)


@app.command("list")
@common
def list_tokens(session: Session) -> None:
    """All tokens, without their secrets."""
    rows = _ask(session, "list", PATH, None)
    if not session.machine:
        rows = [_in_words(row) for row in rows]
    session.table(
        rows,
        [
            ("ID", "id"),
            ("STATE", "state"),
            ("EXPIRES", "expires_at"),
            ("LAST USED", "last_used_at"),
            ("NAME", "name"),
            ("SENDERS", "senders"),
            ("SCOPES", "scopes"),
        ],
        empty="no tokens",
    )


@app.command("revoke")
@common
def revoke_token(session: Session, token_id: IdArgument) -> None:
    """End a token at once, with all connections it opened."""
    answer = _ask(session, "revoke", f"{PATH}/{_segment(token_id)}", None)
    session.answer(answer, f"revoked {token_id}")


@app.command("rotate")
@common
def rotate_token(
    session: Session,
    token_id: IdArgument,
    grace: Annotated[
        float | None,
        typer.Option(
            "--grace", metavar="SECONDS", min=0, help="The old secret still opens for so long."
        ),
    ] = None,
) -> None:
    """Give a token a new secret; 'rotate server' does it for the workspace's own."""
    body = {"grace_seconds": grace}
    answer = _ask(session, "rotate", f"{PATH}/{_segment(token_id)}/rotate", body)
    until = answer["token"]["rotating_until"]
    after = f"the old one opens until {until}" if until else "the old one is over"
    if answer["token"]["id"] == "server" and not session.machine:
        note(f"the workspace's token is new, {after}; it is in .agentlip/token")
        return
    _show_secret(session, answer)
    if not session.machine:
        note(after)


def _in_words(row: dict[str, Any]) -> dict[str, Any]:
    senders = row.get("senders")
    told = "any" if senders is None else ", ".join(senders)
    return {**row, "scopes": " ".join(row["scopes"]), "senders": told}


def _show_secret(session: Session, answer: Any) -> None:
    session.answer(answer, str(answer["secret"]))
    if not session.machine:
        note(f"token {answer['token']['id']}: keep it safe, it is not shown again")


def _ask(session: Session, verb: str, path: str, body: Any) -> Any:
    """The answer of the hub; while none runs in this workspace, that of its file."""
    from appliance.sdk.discovery import HubNotRunning, find_hub, find_workspace
    from appliance.sdk.http import HubClient

    remote = session.workspace is None and os.environ.get("AGENTLIP_URL")
    try:
        endpoint = find_hub(session.workspace)
    except HubNotRunning:
        if remote:
            raise
        return _on_file(find_workspace(session.workspace), verb, path, body)
    hub = HubClient(lambda: endpoint)
    if verb == "list":
        return hub.rows(path, "tokens")
    return hub.delete(path) if verb == "revoke" else hub.post(path, body, "")


def _on_file(datadir: Any, verb: str, path: str, body: Any) -> Any:
    from appliance.tokens.offline import tokens_of

    token_id = path.removeprefix(PATH).strip("/").removesuffix("/rotate")
    with tokens_of(datadir) as tokens:
        if verb == "list":
            answer: Any = _all_of(tokens)
        elif verb == "revoke":
            answer = tokens.revoke(token_id)
        elif verb == "create":
            answer = tokens.create(_converted(body, wire.CreateToken))
        else:
            answer = tokens.rotate(token_id, _converted(body, wire.RotateToken))
    return msgspec.to_builtins(answer)


def _all_of(tokens: Any) -> list[wire.Token]:
    page = tokens.list_all()
    rows: list[wire.Token] = page.tokens
    while page.has_more:
        page = tokens.list_all(wire.TokensQuery(after=page.next))
        rows += page.tokens
    return rows


def _converted(body: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise Invalid(f"invalid input: {error}") from None


def _limited(session: Session, scopes: list[str], channels: list[str]) -> list[str]:
    """Scopes as they are stored: `hub:read@CHANNEL_ID` for each channel named."""
    if not channels:
        return scopes
    ids = _channel_ids(session, channels)
    limited = [scope for scope in scopes if scope in wire.BY_CHANNEL]
    if len(limited) < len(scopes):
        raise Invalid(
            "--channel limits hub:read and hub:post only; the other scopes know no channels",
            hint="issue two tokens",
        )
    return [f"{scope}@{channel_id}" for scope in scopes for channel_id in ids]


def _channel_ids(session: Session, channels: list[str]) -> list[str]:
    from appliance.sdk.discovery import find_hub, find_workspace

    if session.workspace is None and os.environ.get("AGENTLIP_URL"):
        from appliance.sdk.catalogue import Catalogue
        from appliance.sdk.http import HubClient

        catalogue = Catalogue(HubClient(lambda: find_hub(None)))
        return [catalogue.channel_id(channel) for channel in channels]
    from appliance.sdk.reader import Reader

    with Reader(find_workspace(session.workspace).database("hub")) as reader:
        return [str(reader.channel(channel)["id"]) for channel in channels]


def _segment(text: str) -> str:
    from urllib.parse import quote

    if not text:
        raise Invalid("an id must not be empty", hint="agentlip token list")
    return quote(text, safe="")
