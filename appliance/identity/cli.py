"""`agentlip identity`: show and manage this workspace's member key."""

from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Session, note, plain_app
from appliance.kernel.errors import Invalid

app = plain_app(
    "The member key: this appliance's identity in meshes.\n\n"
    "Example: agentlip identity show --json | jq -r .pubkey",
    "Other appliances/identity",
)


@app.command("show")
def show(session: Session) -> None:
    """Show the public key and its mode, and whether this machine made the key.

    Example: agentlip identity show
    """
    from appliance.identity.files import read_view
    from appliance.sdk.discovery import HubNotRunning, find_hub

    try:
        find_hub(session.workspace)
    except HubNotRunning:
        answer = msgspec.to_builtins(read_view(*_files(session)))
    else:
        answer = session.hub().get("/v1/identity")
    session.answer(answer, "\n".join(_lines(answer)))


@app.command("accept-host")
def accept_host(session: Session) -> None:
    """Accept the key on this machine, after a move of the workspace from another one.

    Example: agentlip identity accept-host
    """
    from appliance.identity import files

    answer = msgspec.to_builtins(files.accept_host(*_files(session)))
    session.answer(answer, f"key {answer['key_id']} now belongs to this machine")


@app.command("remint")
def remint(
    session: Session,
    yes: Annotated[bool, typer.Option("--yes", help="Required to make the change.")] = False,
) -> None:
    """Make a new key, because this workspace is a copy. Brokers see a new member, and the
    workspace's network agents are put aside: the original runs the agents.

    Example: agentlip identity remint --yes
    """
    if not yes:
        raise Invalid("remint replaces the member key: the new one is not a member of any mesh",
                      hint="--yes")  # fmt: skip
    from appliance.identity import files
    from appliance.kernel.clock import SystemClock
    from appliance.kernel.ids import random_id
    from appliance.workspace.datadir import WriterLock

    datadir, settings = _files(session)
    with WriterLock(datadir, random_id()):  # a running process would keep the old key
        aside = files.put_agents_aside(datadir, SystemClock())
        answer = msgspec.to_builtins(files.remint(datadir, settings, SystemClock()))
    if aside is not None:
        note(f"network agents are put aside in {aside}, so that no agent runs twice")
    session.answer(answer, f"the member key is now {answer['pubkey']}")


@app.command("rotate")
def rotate(session: Session) -> None:
    """Replace the key and stay the same member: every broker must accept the new key first.

    Example: agentlip identity rotate
    """
    answer = session.hub().post("/v1/identity/rotate", {}, "")
    meshes = ", ".join(answer["meshes"]) or "none"
    session.answer(answer, f"the member key is now {answer['pubkey']}; accepted by: {meshes}")


def _files(session: Session) -> tuple[Any, Any]:
    """Return the workspace and its [identity] settings."""
    import os

    from appliance.identity.settings import IdentitySettings
    from appliance.kernel import config
    from appliance.workspace.datadir import find_workspace

    class IdentitySection(msgspec.Struct, frozen=True):
        identity: IdentitySettings = IdentitySettings()

    datadir = find_workspace(session.workspace)
    return datadir, config.load(IdentitySection, datadir.settings_file, os.environ).identity


def _lines(fields: Any) -> list[str]:
    which = {"same": "this", "other": "ANOTHER", "unknown": "an unknown"}[fields["host"]]
    made = f"since {fields['created_at']}, made on {which} machine"
    lines = [fields["pubkey"], f"{fields['mode']}, {made}"]
    lines += [f"archived: {key['key_id']} until {key['expires_at']}" for key in fields["archived"]]
    if fields["rotation_unfinished"]:
        lines.append("a rotation is unfinished: agentlip identity rotate")
    return lines
