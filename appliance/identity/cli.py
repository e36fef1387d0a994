"""`agentlip identity`: the member key of this workspace, on its files or through its hub."""

from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Session, common, note, plain_app
from appliance.kernel.errors import Invalid

app = plain_app(
    "The member key: who this appliance is towards meshes.\n\n"
    "Example: agentlip identity show --json | jq -r .pubkey"
)
YesFlag = Annotated[bool, typer.Option("--yes", help="Do it; without, only say what it means.")]
NOT_SURE = "add --yes to do it"


@app.command("show")
@common
def show(session: Session) -> None:
    """The public key, how it is kept, and whether this machine is its home.

    Example: agentlip identity show
    """
    answer = _through_hub(session, "GET", "/v1/identity")
    if answer is None:
        from appliance.identity.files import shown_of

        datadir, settings = _files(session)
        answer = msgspec.to_builtins(shown_of(datadir, settings))
    session.answer(answer, "\n".join(_lines(answer)))


@app.command("accept-host")
@common
def accept_host(session: Session) -> None:
    """This machine took the place of the one the key was made on: keep the key.

    Example: agentlip identity accept-host
    """
    from appliance.identity import files

    datadir, settings = _files(session)
    answer = msgspec.to_builtins(files.accept_host(datadir, settings))
    session.answer(answer, f"this machine is the home of key {answer['key_id']} now")


@app.command("remint")
@common
def remint(session: Session, yes: YesFlag = False) -> None:
    """This workspace is a copy: make another key. Brokers see a new member.

    Example: agentlip identity remint --yes
    """
    if not yes:
        raise Invalid("the key of this workspace is replaced, and is no member anywhere then",
                      hint=NOT_SURE)  # fmt: skip
    from appliance.identity import files
    from appliance.kernel.clock import SystemClock
    from appliance.kernel.datadir import WriterLock
    from appliance.kernel.ids import random_id

    datadir, settings = _files(session)
    lock = WriterLock(datadir, random_id())
    lock.acquire()  # what runs holds the old key
    try:
        answer = msgspec.to_builtins(files.remint(datadir, settings, SystemClock()))
    finally:
        lock.release()
    session.answer(answer, f"the member key is {answer['pubkey']} now")


@app.command("rotate")
@common
def rotate(session: Session) -> None:
    """Another key in place of this one, the same member: every broker is told first.

    Example: agentlip identity rotate
    """
    from appliance.sdk.discovery import find_hub
    from appliance.sdk.http import HubClient

    answer = HubClient(lambda: find_hub(session.workspace)).post("/v1/identity/rotate", {}, "")
    meshes = ", ".join(answer["meshes"]) or "no broker elsewhere"
    session.answer(answer, f"the member key is {answer['pubkey']} now; told: {meshes}")


@app.command("archive-cleanup")
@common
def archive_cleanup(
    session: Session,
    older_than: Annotated[
        float,
        typer.Option(
            "--older-than",
            metavar="DAYS",
            min=0,
            max=36500,
            help="Keep what was rotated out later, even past its grace time.",
        ),
    ] = 0.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed.")
    ] = False,
    yes: YesFlag = False,
) -> None:
    """Remove archived keys that nothing needs any more. Stop the appliance first.

    A rotated-out key is needed for its grace time (identity.archive_days): until then it decrypts
    what was sealed for it, and stays. Malformed archives that were put aside go after 30 days.

    Example: agentlip identity archive-cleanup --older-than 14 --yes
    """  # fmt: skip
    from appliance.cli_recover import stopped_workspace
    from appliance.identity import files
    from appliance.kernel.clock import SystemClock

    datadir, settings = _files(session)
    clock = SystemClock()
    found = files.clean_archive(datadir, settings, older_than, clock, do=False)
    if not dry_run and (found.removed or found.put_aside):
        if not yes:
            raise Invalid(
                f"what was sealed for them can't be decrypted again: {_counted(found)} to remove",
                hint=NOT_SURE,
                details={"found": msgspec.to_builtins(found)},
            )
        with stopped_workspace(session):
            found = files.clean_archive(datadir, settings, older_than, clock, do=True)
    verb = "would remove" if dry_run else "removed"
    names = [*(key.key_id for key in found.removed), *found.put_aside]
    lines = [f"{verb} {_counted(found)}, kept {len(found.kept)} of the keys"]
    lines += [f"{verb} {name}" for name in names]
    lines += [f"kept {key.key_id} until {key.expires_at}" for key in found.kept]
    session.answer(msgspec.structs.replace(found, dry_run=dry_run), "\n".join(lines))


def _counted(found: Any) -> str:
    keys, aside = len(found.removed), len(found.put_aside)
    more = f" and {aside} archive{'s' * (aside != 1)} put aside" if aside else ""
    return f"{keys} archived key{'s' * (keys != 1)}{more}"


@app.command("rotate-token")
@common
def rotate_token(
    session: Session,
    grace: Annotated[
        float, typer.Option("--grace", metavar="SECONDS", min=0, help="The old one opens so long.")
    ] = 60.0,
) -> None:
    """A new token for this workspace; the old one opens for 60 s more.

    Example: agentlip identity rotate-token
    """
    from appliance.sdk.discovery import find_hub
    from appliance.sdk.http import HubClient

    hub = HubClient(lambda: find_hub(session.workspace))
    answer = hub.post("/api/v1/tokens/server/rotate", {"grace_seconds": grace}, "")
    until = answer["token"]["rotating_until"]
    shown = {"rotating_until": until}
    session.answer(shown, "the workspace's token is new; it is in .agentlip/token")
    if until and not session.machine:
        note(f"the old one opens until {until}")


def _through_hub(session: Session, method: str, path: str) -> Any:
    """The answer of the hub that runs here; None while none does."""
    from appliance.sdk.discovery import HubNotRunning, find_hub
    from appliance.sdk.http import HubClient

    del method
    try:
        endpoint = find_hub(session.workspace)
    except HubNotRunning:
        return None
    return HubClient(lambda: endpoint).get(path)


def _files(session: Session) -> tuple[Any, Any]:
    """The workspace, and its [identity] settings."""
    import os

    from appliance.identity.settings import IdentitySettings
    from appliance.kernel import config
    from appliance.sdk.discovery import find_workspace

    class Section(msgspec.Struct, frozen=True):
        identity: IdentitySettings = IdentitySettings()

    datadir = find_workspace(session.workspace)
    return datadir, config.load(Section, datadir.settings_file, os.environ).identity


def _lines(shown: Any) -> list[str]:
    home = {
        "same": "made on this machine",
        "moved_card": "made on this machine",
        "other": "made on ANOTHER machine",
        "unknown": "its machine can't be known again",
    }[shown["host"]]
    lines = [shown["pubkey"], f"{shown['mode']}, since {shown['created_at']}, {home}"]
    lines += [f"archived: {key['key_id']} until {key['expires_at']}" for key in shown["archived"]]
    if shown["rotation_unfinished"]:
        lines.append("a rotation is unfinished: agentlip identity rotate")
    return lines
