"""Implements `agentlip token`: through the running hub, or on its database file while none runs."""

import os
from math import isfinite
from typing import Annotated, Any

import typer

from appliance.cli_support import Session, note, plain_app
from appliance.kernel.errors import Invalid
from appliance.tokens import wire

app = plain_app(
    "Tokens: create, list, revoke, rotate. 'server' is the workspace's own.", "Administration/token"
)

IdArgument = Annotated[str, typer.Argument(metavar="TOKEN", help="Token id or name.")]
PATH, SESSIONS = "/api/v1/tokens", "/api/v1/sessions"
OF_SESSION = "ses_"  # how a session's id begins
INVITED_SECONDS = 86_400.0  # for a colleague, who may read the link tomorrow


@app.command("create")
def create_token(
    session: Session,
    name: Annotated[str, typer.Option("--name", help="Unique token name.")],
    scope: Annotated[
        list[str],
        typer.Option("--scope", help="Scope: hub:read, hub:post, admin, …; may be repeated."),
    ],
    channel: Annotated[
        list[str] | None,
        typer.Option(
            "--channel", help="Limit hub scopes to this channel (name or id); may be repeated."
        ),
    ] = None,
    sender: Annotated[
        list[str] | None,
        typer.Option(
            "--sender",
            help="Allow only this sender or agent; may be repeated (default: any sender).",
        ),
    ] = None,
    expires: Annotated[
        float | None,
        typer.Option(
            "--expires", metavar="DAYS", help="Days until the token expires (default: never)."
        ),
    ] = None,
    invite: Annotated[
        bool,
        typer.Option("--invite", help="Print a one-time link to the web UI, valid for a day."),
    ] = False,
) -> None:
    """Issue a token, and show its secret, this once.

    A colleague: agentlip token create --name grace --scope hub:read --scope hub:post --invite
    """
    if expires is not None and not isfinite(expires):
        raise Invalid("--expires must be a number of days")
    body = {
        "name": name,
        "scopes": _scopes_with_channels(session, scope, channel or []),
        "expires_days": expires,
    }
    if sender:
        body["senders"] = sender
    if invite:
        session.hub().get("/health")  # before a token exists that nobody could use
    answer = _hub(session).post(PATH, body, "")
    if not invite:
        _show_secret(session, answer)
        return
    token = answer["token"]
    made = session.sign_in_link(token_id=token["id"], lifetime_seconds=INVITED_SECONDS)
    session.answer({**answer, **made}, made["link"])
    session.note(f"it signs one browser in with {token['id']}, once, until {made['expires_at']}")


@app.command("list")
def list_tokens(session: Session) -> None:
    """List all tokens without their secrets, and below each the browsers signed in with it."""
    hub = _hub(session)
    rows = hub.rows(PATH, "tokens")
    for row in rows:
        row["sessions"] = []
    of_token = {row["id"]: row["sessions"] for row in rows}
    for signed_in in hub.rows(SESSIONS, "sessions"):
        of_token.get(signed_in["token_id"], []).append(signed_in)
    if not session.machine:
        rows = [line for row in rows for line in (row, *row["sessions"])]
    session.table(
        rows,
        [
            ("ID", "id"),
            ("STATE", lambda row: row.get("state", "session")),
            ("EXPIRES", "expires_at"),
            ("LAST USED", "last_used_at"),
            ("NAME", lambda row: row.get("name", row.get("token_name"))),
            ("SENDERS", lambda row: ", ".join(row.get("senders", "-") or ["any"])),
            ("SCOPES", lambda row: " ".join(row.get("scopes", "-"))),
        ],
        empty="no tokens",
    )


@app.command("revoke")
def revoke_token(session: Session, token_id: IdArgument) -> None:
    """Revoke a token and close its connections, or end a browser's session."""
    path, hub = SESSIONS if token_id.startswith(OF_SESSION) else PATH, _hub(session)
    token_id = _id_of(hub, token_id)
    answer = hub.delete(f"{path}/{_segment(token_id)}")
    session.answer(answer, f"revoked {token_id}")


@app.command("rotate")
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
    """Replace a token's secret; 'server' is the workspace's own token."""
    body, hub = {"grace_seconds": grace}, _hub(session)
    answer = hub.post(f"{PATH}/{_segment(_id_of(hub, token_id))}/rotate", body, "")
    until = answer["token"]["rotating_until"]
    after = f"the old one is valid until {until}" if until else "the old one is invalid"
    if answer["token"]["id"] == "server" and not session.machine:
        note(f"the workspace has a new token, in .agentlip/token; {after}")
        return
    _show_secret(session, answer)
    session.note(after)


def _id_of(hub: Any, given: str) -> str:
    """Return the id for the valid token with this name; anything else is taken as an id."""
    if given.startswith(("tok_", OF_SESSION)):
        return given
    valid = (row for row in hub.rows(PATH, "tokens") if row["state"] == "active")
    return next((row["id"] for row in valid if row["name"] == given), given)


def _show_secret(session: Session, answer: Any) -> None:
    session.answer(answer, str(answer["secret"]))
    session.note(f"token {answer['token']['id']}: store it safely, because it is not shown again")


def _hub(session: Session) -> Any:
    """Return a client for the running hub; while none runs, one that works on the database file."""
    from appliance.sdk.discovery import HubNotRunning, find_hub
    from appliance.sdk.http import HubClient
    from appliance.workspace.datadir import find_workspace

    try:
        endpoint = find_hub(session.workspace)
    except HubNotRunning:
        from appliance.tokens.offline import StoppedHub

        return StoppedHub(find_workspace(session.workspace))
    return HubClient(lambda: endpoint)


def _scopes_with_channels(session: Session, scopes: list[str], channels: list[str]) -> list[str]:
    """Return scopes as they are stored: `hub:read@CHANNEL_ID` for each channel named."""
    if not channels:
        return scopes
    ids = _channel_ids(session, channels)
    limited = [scope for scope in scopes if scope in wire.BY_CHANNEL]
    if len(limited) < len(scopes):
        raise Invalid(
            "--channel limits only hub:read, hub:post and ask:answer; others have no channels",
            hint="issue a second token for the other scopes: agentlip token create",
        )
    return [f"{scope}@{channel_id}" for scope in scopes for channel_id in ids]


def _channel_ids(session: Session, channels: list[str]) -> list[str]:
    if session.workspace is None and os.environ.get("AGENTLIP_URL"):
        from appliance.sdk.catalogue import channel_id_of

        hub = session.hub()
        return [channel_id_of(hub, channel) for channel in channels]
    from appliance.sdk.reader import WorkspaceReader
    from appliance.workspace.datadir import find_workspace

    with WorkspaceReader(find_workspace(session.workspace).database("hub")) as reader:
        return [str(reader.channel(channel)["id"]) for channel in channels]


def _segment(text: str) -> str:
    from urllib.parse import quote

    if not text:
        raise Invalid("the token id must not be empty", hint="agentlip token list")
    return quote(text, safe="")
