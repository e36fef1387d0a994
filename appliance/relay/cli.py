"""Implements `agentlip relay`: admins and their decisions. Keys stay where the command runs."""

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import PKCS8, Session, note, plain_app, read_secret
from appliance.declared_roles import Roles
from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import Invalid, Missing

app = plain_app(
    "The agent network's relay: admins, approval, revocation, broadcasts.\n\n"
    "Example: agentlip relay pending --as ada --key-file ada.key",
    "Other appliances/relay",
)
admins_app = plain_app("This workspace's relay admins, while the appliance is stopped.")
app.add_typer(admins_app, name="admins")
CLOCK = SystemClock()
SERVED = ("relay", "outbox", "backup")

AgentArgument = Annotated[str, typer.Argument(metavar="NAME", help="Agent name.")]
RelayFlag = Annotated[
    str, typer.Option("--relay", metavar="URL", help="The relay (default: this workspace's).")
]
AsFlag = Annotated[str, typer.Option("--as", metavar="NAME", help="Admin name.")]
KeyFileFlag = Annotated[
    Path, typer.Option("--key-file", help="File with the admin key (PKCS #8, base64).")
]


@admins_app.command("add")
def add_admin(
    session: Session,
    name: AgentArgument,
    key: Annotated[
        str | None, typer.Option("--key", help="The admin's public key (SPKI, base64).")
    ] = None,
    new_key: Annotated[
        Path | None, typer.Option("--new-key", help="Make a key, and write it to this new file.")
    ] = None,
) -> None:
    """Add an admin, or replace its key. Compare the fingerprint with the admin's.

    Example: agentlip relay admins add ada --new-key ada.key
    """
    from appliance.network.keys import AgentKey, AgentPublicKey
    from appliance.network.names import check_agent_name
    from appliance.network.safety import fingerprint
    from appliance.relay import writes

    check_agent_name(name)
    if (key is None) == (new_key is None):
        raise Invalid("give either --key or --new-key", hint="agentlip relay admins add --help")
    made = None if new_key is None else AgentKey.generate()
    public = AgentPublicKey.of(key or "") if made is None else made.public
    if made is not None and new_key is not None:
        _write_key(new_key, made.pkcs8())
    with _open_stopped(session) as store:
        store.write(writes.add_admin, name, str(public))
    answer = {"agent": name, "publicKey": str(public), "fingerprint": fingerprint(public)}
    session.answer(answer, f"{name} is an admin; its key is {answer['fingerprint']}")


@admins_app.command("list")
def list_admins(session: Session) -> None:
    """List the admins, with their keys' fingerprints."""
    from appliance.relay import queries

    with _open_stopped(session) as store:
        rows = store.read(queries.admins)
    _print_keys(session, [{"agent": row.agent, "adminPublicKey": row.public_key} for row in rows])


@admins_app.command("remove")
def remove_admin(session: Session, name: AgentArgument) -> None:
    """Remove an admin. Approvals and revocations stay."""
    from appliance.relay import writes

    with _open_stopped(session) as store:
        store.write(writes.remove_admin, name)
    session.answer({"agent": name}, f"{name} is not an admin any more")


@app.command("pending")
def list_pending(
    session: Session, name: AsFlag, key_file: KeyFileFlag, relay: RelayFlag = ""
) -> None:
    """List agents that wait for approval, each with its checklist."""
    from appliance.relay.checklist import describe
    from appliance.relay.wire import PendingAgent

    agents = _admin(session, relay, name, key_file).pending()
    text = "\n".join(map(describe, msgspec.convert(agents, list[PendingAgent])))
    session.answer(agents, text or "no agent waits for approval")


@app.command("approve")
def approve(
    session: Session,
    agent: AgentArgument,
    name: AsFlag,
    key_file: KeyFileFlag,
    relay: RelayFlag = "",
) -> None:
    """Approve an agent. Look at its checklist first: agentlip relay pending."""
    answer = _admin(session, relay, name, key_file).approve(agent)
    more = "; more admins have to approve it" if answer["status"] == "pending" else ""
    session.answer(answer, f"{agent} is {answer['status']}{more}")


@app.command("revoke")
def revoke(
    session: Session,
    agent: AgentArgument,
    name: AsFlag,
    key_file: KeyFileFlag,
    reason: Annotated[str, typer.Option("--reason", help="The reason, for all agents.")] = "",
    relay: RelayFlag = "",
) -> None:
    """Revoke an agent forever, and announce the revocation in a signed broadcast."""
    answer = _admin(session, relay, name, key_file).revoke(agent, reason)
    shown = {**answer, "ok": True}
    session.answer(shown, f"{agent} is revoked, and this is announced to all agents")


@app.command("broadcast")
def broadcast(
    session: Session,
    message: Annotated[str, typer.Argument(help="The text.")],
    name: AsFlag,
    key_file: KeyFileFlag,
    kind: Annotated[
        str,
        typer.Option("--type", help="`security-alert`, `maintenance`, `update` or `announcement`."),
    ] = "announcement",
    relay: RelayFlag = "",
) -> None:
    """Send a signed text to all agents.

    Example: agentlip relay broadcast 'Back in an hour' --type maintenance --as ada --key-file KEY
    """
    sent = _admin(session, relay, name, key_file).broadcast(kind, {"message": message})
    session.answer({"ok": True, "broadcastId": sent}, f"sent {sent}")


@app.command("keys")
def list_keys(session: Session, relay: RelayFlag = "") -> None:
    """List a relay's admins, with their keys' fingerprints."""
    _print_keys(session, _client(session, relay).request("GET", "/admin/keys"))


@app.command("audit")
def audit(session: Session) -> None:
    """Check this workspace's whole key log against the agents' table, and the groups' logs.

    Example: agentlip relay audit
    """
    from contextlib import closing

    from appliance.checks.context import open_read_only
    from appliance.relay import group_audit, key_log

    database = session.datadir.database("relay")
    if not database.exists():
        raise Missing("this workspace has no relay", hint="agentlip relay admins add --help")
    with closing(open_read_only(database)) as connection:
        number, last_hash = key_log.head(connection)
        problems = key_log.find_problems(connection) + group_audit.find_problems(connection)
    answer = {"ok": not problems, "number": number, "hash": last_hash, "problems": problems}
    session.answer(
        answer, "\n".join(problems) or f"{number} entries agree; the hash is {last_hash}"
    )
    if problems:
        raise typer.Exit(1)


@app.command("serve")
def serve(session: Session) -> None:
    """Serve only the relay, in the foreground, without the other subsystems.

    Example: agentlip relay serve
    """
    roles = {role: "true" if role in SERVED else "false" for role in Roles.__struct_fields__}
    environment = os.environ | {f"AGENTLIP_ROLES__{role.upper()}": on for role, on in roles.items()}
    program = shutil.which("agentlipd", path=str(Path(sys.argv[0]).absolute().parent))
    if program is None:
        raise Missing(
            "the command agentlipd is missing in this command's folder", hint="agentlipd up"
        )
    folder = [] if session.workspace is None else ["--workspace", str(session.workspace)]
    os.execve(program, [program, "up", "--foreground", *folder], environment)


def _admin(session: Session, url: str, name: str, key_file: Path) -> Any:
    from appliance.network.keys import AgentKey
    from appliance.sdk.network.admin import RelayAdmin

    key = AgentKey.of(read_secret(key_file, "--key-file", PKCS8))
    return RelayAdmin(_client(session, url, name, key), key, CLOCK)


def _client(session: Session, url: str, name: str = "", key: Any = None) -> Any:
    from appliance.sdk.discovery import find_hub
    from appliance.sdk.network.relay_client import RelayClient

    return RelayClient(url or find_hub(session.workspace).url, CLOCK, name, key)


def _open_stopped(session: Session) -> Any:
    """Return the relay's store, while the appliance is stopped."""
    from appliance.workspace.stopped_store import stopped_store

    return stopped_store(session.datadir, "relay", CLOCK)


def _print_keys(session: Session, rows: list[dict[str, Any]]) -> None:
    from appliance.network.keys import AgentPublicKey
    from appliance.network.safety import fingerprint

    shown = [
        row | {"fingerprint": fingerprint(AgentPublicKey.of(row["adminPublicKey"]))} for row in rows
    ]
    session.table(
        shown,
        [("ADMIN", "agent"), ("FINGERPRINT", "fingerprint")],
        empty="no admins; add one with 'agentlip relay admins add NAME --new-key FILE'",
    )


def _write_key(path: Path, text: str) -> None:
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Invalid(f"{path.name} exists already", hint="name another file") from None
    with os.fdopen(number, "w") as file:
        file.write(text + "\n")
    note(f"wrote the private key to {path}; keep it off the relay's machine")
