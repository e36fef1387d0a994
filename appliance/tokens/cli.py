"""`agentlip token`: through the running hub, or on its database file while none runs."""

import os
from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Session, common, note, plain_app
from appliance.kernel.errors import Invalid
from appliance.tokens import wire

app = plain_app("Access tokens. 'server' is the workspace's own.")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the token.")]
PATH = "/api/v1/tokens"


@app.command("create")
@common
def create_token(
    session: Session,
    name: Annotated[str, typer.Option("--name", help="Unique name of the token.")],
    scope: Annotated[
        list[str],
        typer.Option("--scope", help="Scope: hub:read, hub:post, admin, …; can be repeated."),
    ],
    channel: Annotated[
        list[str] | None,
        typer.Option(
            "--channel", help="Limit hub scopes to this channel (name or id); can be repeated."
        ),
    ] = None,
    sender: Annotated[
        list[str] | None,
        typer.Option(
            "--sender", help="Allow only this sender name; can be repeated (default: any)."
        ),
    ] = None,
    expires: Annotated[
        float | None,
        typer.Option(
            "--expires", metavar="DAYS", help="Days until the token expires (default: never)."
        ),
    ] = None,
) -> None:
    """Issue a token. Its secret is shown only once."""
    body = {
        "name": name,
        "scopes": _scopes_with_channels(session, scope, channel or []),
        "expires_days": expires,
    }
    if sender:
        body["senders"] = sender
    answer = _call(session, "create", PATH, body)
    _show_secret(session, answer)


@app.command("list")
@common
def list_tokens(session: Session) -> None:
    """List all tokens without their secrets."""
    rows = _call(session, "list", PATH, None)
    if not session.machine:
        rows = [_as_text(row) for row in rows]
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
    """Revoke a token and close its connections."""
    answer = _call(session, "revoke", f"{PATH}/{_segment(token_id)}", None)
    session.answer(answer, f"revoked {token_id}")


@app.command("rotate")
@common
def rotate_token(
    session: Session,
    token_id: IdArgument,
    grace: Annotated[
        float | None,
        typer.Option(
            "--grace",
            metavar="SECONDS",
            min=0,
            help="Seconds the old secret stays valid (default: 300).",
        ),
    ] = None,
) -> None:
    """Replace the secret of a token; 'server' is the workspace's own."""
    body = {"grace_seconds": grace}
    answer = _call(session, "rotate", f"{PATH}/{_segment(token_id)}/rotate", body)
    until = answer["token"]["rotating_until"]
    after = f"the old one is valid until {until}" if until else "the old one is invalid"
    if answer["token"]["id"] == "server" and not session.machine:
        note(f"the workspace has a new token, in .agentlip/token; {after}")
        return
    _show_secret(session, answer)
    if not session.machine:
        note(after)


def _as_text(row: dict[str, Any]) -> dict[str, Any]:
    senders = row.get("senders")
    senders_text = "any" if senders is None else ", ".join(senders)
    return {**row, "scopes": " ".join(row["scopes"]), "senders": senders_text}


def _show_secret(session: Session, answer: Any) -> None:
    session.answer(answer, str(answer["secret"]))
    if not session.machine:
        note(f"token {answer['token']['id']}: store it safely, it is not shown again")


def _call(session: Session, verb: str, path: str, body: Any) -> Any:
    """The reply of the running hub; while none runs, the result on the database file."""
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
            answer = tokens.create(_convert(body, wire.CreateToken))
        else:
            answer = tokens.rotate(token_id, _convert(body, wire.RotateToken))
    return msgspec.to_builtins(answer)


def _all_of(tokens: Any) -> list[wire.Token]:
    page = tokens.list_all()
    rows: list[wire.Token] = page.tokens
    while page.has_more:
        page = tokens.list_all(wire.TokensQuery(after=page.next))
        rows += page.tokens
    return rows


def _convert(body: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise Invalid(f"invalid input: {error}") from None


def _scopes_with_channels(session: Session, scopes: list[str], channels: list[str]) -> list[str]:
    """Scopes as they are stored: `hub:read@CHANNEL_ID` for each channel named."""
    if not channels:
        return scopes
    ids = _channel_ids(session, channels)
    limited = [scope for scope in scopes if scope in wire.BY_CHANNEL]
    if len(limited) < len(scopes):
        raise Invalid(
            "--channel limits only hub:read and hub:post; other scopes have no channels",
            hint="issue a second token for the other scopes: agentlip token create",
        )
    return [f"{scope}@{channel_id}" for scope in scopes for channel_id in ids]


def _channel_ids(session: Session, channels: list[str]) -> list[str]:
    from appliance.sdk.discovery import find_hub, find_workspace

    if session.workspace is None and os.environ.get("AGENTLIP_URL"):
        from appliance.sdk.catalogue import Catalogue
        from appliance.sdk.http import HubClient

        catalogue = Catalogue(HubClient(lambda: find_hub(None)))
        return [catalogue.channel_id(channel) for channel in channels]
    from appliance.sdk.reader import WorkspaceReader

    with WorkspaceReader(find_workspace(session.workspace).database("hub")) as reader:
        return [str(reader.channel(channel)["id"]) for channel in channels]


def _segment(text: str) -> str:
    from urllib.parse import quote

    if not text:
        raise Invalid("the token id must not be empty", hint="agentlip token list")
    return quote(text, safe="")
