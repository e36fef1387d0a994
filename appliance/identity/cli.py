"""`agentlip identity`: show and manage the member key of this workspace."""

from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Session, plain_app
from appliance.kernel.errors import Invalid

app = plain_app(
    "The member key: the identity of this appliance in meshes.\n\n"
    "Example: agentlip identity show --json | jq -r .pubkey",
    "Other appliances/identity",
)
YesFlag = Annotated[bool, typer.Option("--yes", help="Required to make the change.")]
NOT_SURE = "add --yes to confirm"


@app.command("show")
def show(session: Session) -> None:
    """Show the public key, its mode, and whether it was made on this machine.

    Example: agentlip identity show
    """
    from appliance.identity.files import IdentityFiles, read_view
    from appliance.sdk.discovery import HubNotRunning, find_hub

    try:
        find_hub(session.workspace)
    except HubNotRunning:
        datadir, settings = _files(session)
        IdentityFiles(datadir).read_keys(settings)  # refuses a lost key as a start does
        answer = msgspec.to_builtins(read_view(datadir, settings))
    else:
        answer = session.hub().get("/v1/identity")
    session.answer(answer, "\n".join(_lines(answer)))


@app.command("accept-host")
def accept_host(session: Session) -> None:
    """Keep the key on this machine, which replaces the one the key was made on.

    Example: agentlip identity accept-host
    """
    from appliance.identity import files

    datadir, settings = _files(session)
    answer = msgspec.to_builtins(files.accept_host(datadir, settings))
    session.answer(answer, f"key {answer['key_id']} now belongs to this machine")


@app.command("remint")
def remint(session: Session, yes: YesFlag = False) -> None:
    """Make a new key, because this workspace is a copy. Brokers see a new member.

    Example: agentlip identity remint --yes
    """
    if not yes:
        raise Invalid("remint replaces the member key: the new one is not a member of any mesh",
                      hint=NOT_SURE)  # fmt: skip
    from appliance.identity import files
    from appliance.kernel.clock import SystemClock
    from appliance.kernel.ids import random_id
    from appliance.workspace.datadir import WriterLock

    datadir, settings = _files(session)
    lock = WriterLock(datadir, random_id())
    lock.acquire()  # a running process would keep the old key
    try:
        answer = msgspec.to_builtins(files.remint(datadir, settings, SystemClock()))
    finally:
        lock.release()
    session.answer(answer, f"the member key is now {answer['pubkey']}")


@app.command("rotate")
def rotate(session: Session) -> None:
    """Replace the key and stay the same member: every broker must accept the new key first.

    Example: agentlip identity rotate
    """
    answer = session.hub().post("/v1/identity/rotate", {}, "")
    meshes = ", ".join(answer["meshes"]) or "none"
    session.answer(answer, f"the member key is now {answer['pubkey']}; accepted by: {meshes}")


@app.command("archive-cleanup")
def archive_cleanup(
    session: Session,
    older_than: Annotated[
        float,
        typer.Option(
            "--older-than",
            metavar="DAYS",
            min=0,
            max=36500,
            help="Only keys rotated out more than this many days ago.",
        ),
    ] = 0.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed, remove nothing.")
    ] = False,
    yes: YesFlag = False,
) -> None:
    """Remove archived keys past their grace period. Stop the appliance first.

    During its grace period of a week a rotated-out key still decrypts data sealed for
    it, and is kept. Malformed archives that were put aside are removed after 30 days.

    Example: agentlip identity archive-cleanup --older-than 14 --yes
    """  # fmt: skip
    from appliance.identity import files
    from appliance.kernel.clock import SystemClock
    from appliance.workspace.swap import hold_stopped

    datadir, settings = _files(session)
    clock = SystemClock()
    result = files.clean_archive(datadir, settings, older_than, clock, apply=False)
    if not dry_run and (result.removed or result.put_aside):
        if not yes:
            raise Invalid(
                f"this removes {_counted(result)}; data sealed for them becomes unreadable",
                hint=NOT_SURE,
                details={"found": msgspec.to_builtins(result)},
            )
        with hold_stopped(datadir, clock):
            result = files.clean_archive(datadir, settings, older_than, clock, apply=True)
    verb = "would remove" if dry_run else "removed"
    names = [*(key.key_id for key in result.removed), *result.put_aside]
    lines = [f"{verb} {_counted(result)}, kept {len(result.kept)} of the keys"]
    lines += [f"{verb} {name}" for name in names]
    lines += [f"kept {key.key_id} until {key.expires_at}" for key in result.kept]
    session.answer(msgspec.structs.replace(result, dry_run=dry_run), "\n".join(lines))


def _counted(result: Any) -> str:
    keys, aside = len(result.removed), len(result.put_aside)
    more = f" and {aside} archive{'s' * (aside != 1)} put aside" if aside else ""
    return f"{keys} archived key{'s' * (keys != 1)}{more}"


@app.command("rotate-token")
def rotate_token(
    session: Session,
    grace: Annotated[
        float,
        typer.Option(
            "--grace", metavar="SECONDS", min=0, help="Seconds the old token stays valid."
        ),
    ] = 60.0,
) -> None:
    """Replace the token of this workspace; the old one stays valid for 60 s.

    Example: agentlip identity rotate-token
    """
    answer = session.hub().post("/api/v1/tokens/server/rotate", {"grace_seconds": grace}, "")
    until = answer["token"]["rotating_until"]
    fields = {"rotating_until": until}
    session.answer(fields, "the workspace has a new token, in .agentlip/token")
    if until:
        session.note(f"the old token is valid until {until}")


def _files(session: Session) -> tuple[Any, Any]:
    """The workspace and its [identity] settings."""
    import os

    from appliance.identity.settings import IdentitySettings
    from appliance.kernel import config
    from appliance.sdk.discovery import find_workspace

    class IdentitySection(msgspec.Struct, frozen=True):
        identity: IdentitySettings = IdentitySettings()

    datadir = find_workspace(session.workspace)
    return datadir, config.load(IdentitySection, datadir.settings_file, os.environ).identity


def _lines(fields: Any) -> list[str]:
    home = {
        "same": "made on this machine",
        "moved_card": "made on this machine",
        "other": "made on ANOTHER machine",
        "unknown": "made on an unknown machine",
    }[fields["host"]]
    lines = [fields["pubkey"], f"{fields['mode']}, since {fields['created_at']}, {home}"]
    lines += [f"archived: {key['key_id']} until {key['expires_at']}" for key in fields["archived"]]
    if fields["rotation_unfinished"]:
        lines.append("a rotation is unfinished: agentlip identity rotate")
    return lines
