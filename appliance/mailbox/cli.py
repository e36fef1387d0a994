"""Implements `agentlip network`: a network agent in a separate folder."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import PKCS8, Session, note, plain_app, read_secret
from appliance.kernel.errors import Invalid
from appliance.mailbox.cli_agent import (
    FolderFlag,
    NameArgument,
    folder_of,
    open_agent,
    open_folder_agent,
)
from appliance.mailbox.cli_groups import group_app

app = plain_app(
    "An agent in the network: contacts, encrypted messages, keys.\n\n"
    "Example: agentlip network send bert 'The build is green'",
    "Other appliances/network",
)
app.add_typer(group_app, name="group")
SIGNAL_SECONDS = 1.0  # a signal right before a wait for requests would be seen after the next one
MESSAGE_COLUMNS = (("NUMBER", "number"), ("TIME", "timestamp"), ("SENDER", "sender"),
                   ("PAYLOAD", "payload"))  # fmt: skip


@app.command("init")
def init(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new agent's name.")],
    relay: Annotated[str, typer.Option("--relay", metavar="URL", help="Relay URL.")],
    endpoint: Annotated[
        str, typer.Option("--endpoint", metavar="URL", help="URL at which others reach this agent.")
    ],
    import_key: Annotated[
        Path | None,
        typer.Option("--import-key", help="Use the private key in this file (PKCS #8, base64)."),
    ] = None,
    loopback: Annotated[
        bool, typer.Option("--loopback", help="Allow endpoints on this machine, for tests.")
    ] = False,
    keyring: Annotated[
        bool, typer.Option("--keyring", help="Keep the key in the system's keyring.")
    ] = False,
    plain_http: Annotated[
        bool, typer.Option("--plain-http", help="Allow a relay without TLS on a trusted network.")
    ] = False,
    lan: Annotated[
        bool, typer.Option("--lan", help="Allow endpoints at private addresses, with TLS.")
    ] = False,
    folder: FolderFlag = None,
) -> None:
    """Make an agent: a folder with its key. Afterwards: agentlip network register EMAIL.

    Example: agentlip network init anna --relay https://relay.example.org
    --endpoint https://anna.example.org/network/inbox
    """
    from appliance.network.keys import AgentKey
    from appliance.network.safety import fingerprint
    from appliance.sdk.network.folder import AgentConfig, AgentFolder
    from appliance.sdk.network.peers import check_endpoint
    from appliance.sdk.network.relay_client import check_relay

    check_endpoint(endpoint, loopback)
    if not plain_http:
        check_relay(relay)
    path = folder or session.datadir.dir / "network" / name
    key = (
        None if import_key is None else AgentKey.of(read_secret(import_key, "--import-key", PKCS8))
    )
    config = AgentConfig(name, relay, endpoint, loopback, keyring, plain_http, lan)
    made = AgentFolder.create(path, config, key)
    public = made.key().public
    shown = {
        "name": name, "folder": str(path), "publicKey": str(public),
        "fingerprint": fingerprint(public),
    }  # fmt: skip
    session.answer(shown, f"made {name} in {path}; its key is {shown['fingerprint']}")


@app.command("direct")
def announce_addresses(
    session: Session,
    addresses: Annotated[
        list[str] | None,
        typer.Argument(metavar="[IP]...", help="Addresses (default: this machine's, as it is)."),
    ] = None,
    off: Annotated[bool, typer.Option("--off", help="Announce none, and try no others'.")] = False,
    folder: FolderFlag = None,
) -> None:
    """Announce addresses in the LAN to contacts, and try theirs before their public endpoints.

    Takes effect when the agent starts again. Example: agentlip network direct 192.168.1.5
    """
    from appliance.network.direct import ADDRESSES_MAX, AUTO, check_direct_address
    from appliance.sdk.network.folder import AgentFolder

    direct = () if off else tuple(addresses or (AUTO,))
    if len(direct) > ADDRESSES_MAX:
        raise Invalid(f"at most {ADDRESSES_MAX} addresses")
    for address in direct:
        check_direct_address(address)
    made = AgentFolder(folder_of(session, folder))
    made.configure(msgspec.structs.replace(made.config(), lan=not off, direct=direct))
    session.answer({"direct": direct}, f"announces {', '.join(direct) or 'no addresses'}")


@app.command("register")
def register(
    session: Session,
    email: Annotated[str, typer.Argument(metavar="EMAIL", help="The owner's mail address.")],
    code: Annotated[str | None, typer.Option("--code", help="Six digits from the mail.")] = None,
    folder: FolderFlag = None,
) -> None:
    """Register at the relay: first without --code, which sends a mail, then with the code."""
    with open_folder_agent(session, folder) as agent:
        if code is None:
            agent.request_code(email)
            status, text = ("code-sent", "run this again with --code and the mailed digits")
        else:
            status = agent.register(email, code)
            text = f"{agent.name} is {status}; a relay admin has to approve this agent"
    session.answer({"status": status}, text)


@app.command("contacts")
def list_contacts(
    session: Session,
    pending: Annotated[
        bool, typer.Option("--pending", help="List requests that wait for an answer instead.")
    ] = False,
    folder: FolderFlag = None,
) -> None:
    """List contacts, with the states of their keys: new, verified, changed."""
    with open_agent(session, folder) as agent:
        if pending:
            columns = [("AGENT", "from"), ("OWNER", "requesterEmail"), ("GREETING", "greeting")]
            session.table(agent.pending_requests(), columns, "no requests wait")
            return
        rows = [msgspec.to_builtins(contact) for contact in agent.contacts()]
        states = {pin.agent: pin.state for pin in agent.pins()}
    rows = [row | {"key": states.get(row["agent"])} for row in rows]
    columns = [("AGENT", "agent"), ("KEY", "key"), ("ONLINE", "online"), ("ENDPOINT", "endpoint")]
    session.table(rows, columns, "no contacts; ask for one: agentlip network request NAME")


@app.command("request")
def request_contact(
    session: Session,
    name: NameArgument,
    greeting: Annotated[
        str, typer.Option("--greeting", help="A text for the other agent's owner.")
    ] = "",
    folder: FolderFlag = None,
) -> None:
    """Ask another agent to become a contact."""
    with open_agent(session, folder) as agent:
        agent.request_contact(name, greeting)
    session.answer({"agent": name}, f"{name} has to accept")


@app.command("accept")
def accept_contact(session: Session, name: NameArgument, folder: FolderFlag = None) -> None:
    """Accept a request. Afterwards both agents can send messages."""
    with open_agent(session, folder) as agent:
        agent.accept_contact(name)
    session.answer({"agent": name}, f"{name} is a contact")


@app.command("deny")
def deny_contact(session: Session, name: NameArgument, folder: FolderFlag = None) -> None:
    """Deny a request."""
    with open_agent(session, folder) as agent:
        agent.deny_contact(name)
    session.answer({"agent": name}, f"denied the request from {name}")


@app.command("block")
def block_contact(session: Session, name: NameArgument, folder: FolderFlag = None) -> None:
    """Deny a request, and all later ones by this agent. A request to the agent ends the block."""
    with open_agent(session, folder) as agent:
        agent.block_contact(name)
    session.answer({"agent": name}, f"{name} is blocked")


@app.command("broadcasts")
def list_broadcasts(
    session: Session,
    before: Annotated[int, typer.Option("--before", help="Only those before this number.")] = 0,
    limit: Annotated[int, typer.Option("--limit", min=1, max=200, help="Most to list.")] = 50,
    folder: FolderFlag = None,
) -> None:
    """List the relay admins' verified broadcasts, newest first.

    Example: agentlip network broadcasts
    """
    with open_agent(session, folder) as agent:
        rows = [msgspec.to_builtins(kept) for kept in agent.broadcasts(before, limit)]
    columns = [("NUMBER", "number"), ("TIME", "time"), ("TYPE", "type"), ("ADMIN", "sender"),
               ("TEXT", "text")]  # fmt: skip
    session.table(rows, columns, "no broadcasts")


@app.command("remove")
def remove_contact(session: Session, name: NameArgument, folder: FolderFlag = None) -> None:
    """End a contact, and delete the contact's key from this machine."""
    with open_agent(session, folder) as agent:
        agent.remove_contact(name)
    session.answer({"agent": name}, f"{name} is not a contact any more")


@app.command("send")
def send(
    session: Session,
    name: NameArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The message.")],
    folder: FolderFlag = None,
) -> None:
    """Send a text. For an unreachable recipient, the message waits for up to one hour.

    Messages that wait are sent by the program that runs the agent, or by `inbox --serve`.
    """
    with open_folder_agent(session, folder) as agent:
        report = agent.send(name, {"text": text})
    problem = report.attempts[-1].problem if report.attempts else None
    session.answer(
        msgspec.to_builtins(report),
        f"{report.status} {report.message_id}" + (f": {problem}" if problem else ""),
    )
    if report.status == "failed":
        raise typer.Exit(1)


@app.command("inbox")
def read_inbox(
    session: Session,
    after: Annotated[int, typer.Option("--after", help="Only messages after this number.")] = 0,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Most to list.")] = 100,
    serve: Annotated[
        str | None,
        typer.Option("--serve", metavar="HOST:PORT", help="Receive until Ctrl-C, without TLS."),
    ] = None,
    folder: FolderFlag = None,
) -> None:
    """List messages received, oldest first, or receive them behind a proxy that has TLS.

    An agent of a running appliance receives into its inbox: agentlip inbox list --mesh network.
    """
    with open_folder_agent(session, folder) as agent:
        if serve is not None:
            _serve(session, agent, serve, after)
        rows = [msgspec.to_builtins(message) for message in agent.messages(after, limit)]
    session.table(rows, MESSAGE_COLUMNS, "no messages")


@app.command("verify")
def verify(
    session: Session,
    name: NameArgument,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="The owners have compared the number.")
    ] = False,
    accept: Annotated[
        str | None, typer.Option("--accept", metavar="FINGERPRINT", help="Accept the changed key.")
    ] = None,
    folder: FolderFlag = None,
) -> None:
    """Show a contact's safety number. The contact's owner must see an identical number."""
    from appliance.network.keys import AgentPublicKey
    from appliance.network.safety import fingerprint

    with open_agent(session, folder) as agent:
        agent.contacts()
        if accept is not None:
            agent.accept_key(name, accept)
        if confirm:
            agent.confirm_key(name)
        number = agent.safety_number(name)
        pin = next(pin for pin in agent.pins() if pin.agent == name)
    shown = {
        "agent": name, "state": pin.state, "safetyNumber": number,
        "fingerprint": fingerprint(AgentPublicKey.of(pin.offered or pin.key)),
    }  # fmt: skip
    session.answer(shown, f"{number}\n{name} is {pin.state}, its key is {shown['fingerprint']}")


@app.command("rotate-key")
def rotate_key(session: Session, folder: FolderFlag = None) -> None:
    """Replace the key. The old key signs the new one, so contacts accept it."""
    with open_agent(session, folder) as agent:
        public = agent.rotate_key()
    session.answer({"publicKey": public}, f"the new key is {public}")


@app.command("recover")
def recover(
    session: Session,
    email: Annotated[str, typer.Argument(metavar="EMAIL", help="The owner's mail address.")],
    code: Annotated[str | None, typer.Option("--code", help="Six digits from the mail.")] = None,
    folder: FolderFlag = None,
) -> None:
    """Replace a lost key by this folder's: first without --code, which sends a mail, then with
    the code. Contacts see the recovery for an hour before the key takes effect.

    Example: agentlip network recover ann@example.org --code 123456
    """
    with open_agent(session, folder) as agent:
        if code is None:
            agent.request_code(email)
            answer, text = {"status": "code-sent"}, "run this again with --code and the digits"
        else:
            answer = {"status": "begun", "effectiveAt": agent.recover(email, code)}
            text = f"the key takes effect at {answer['effectiveAt']}; contacts have to compare it"
    session.answer(answer, text)


@app.command("cancel-recovery")
def cancel_recovery(session: Session, folder: FolderFlag = None) -> None:
    """Keep the present key although somebody asked for another by mail."""
    with open_agent(session, folder) as agent:
        agent.cancel_recovery()
    session.answer({"status": "cancelled"}, "the agent keeps its key")


@app.command("key-log")
def show_key_log(
    session: Session,
    accept: Annotated[
        bool, typer.Option("--accept", help="Pin the log that the relay shows now.")
    ] = False,
    folder: FolderFlag = None,
) -> None:
    """Show the pinned end of the relay's key log, and why the log was refused.

    Accept another log only after the relay's admins have said why it is not the one before.
    """
    with open_agent(session, folder) as agent:
        end = agent.read_key_log(accept=accept)
    text = end.problem or f"entry {end.number} has the hash {end.hash}"
    session.answer(msgspec.to_builtins(end), text)


@app.command("report")
def report(
    session: Session,
    message_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Only this message.")
    ] = None,
    folder: FolderFlag = None,
) -> None:
    """Show the attempts to deliver messages, newest first."""
    with open_agent(session, folder) as agent:
        reports = agent.reports() if message_id is None else [agent.report(message_id)]
    rows = [
        msgspec.to_builtins(report)
        | {"problem": report.attempts[-1].problem if report.attempts else None}
        for report in reports
    ]
    columns = [("ID", "messageId"), ("TO", "recipient"), ("STATUS", "status"),
               ("PROBLEM", "problem")]  # fmt: skip
    session.table(rows, columns, "no messages were sent")


def _serve(session: Session, agent: Any, address: str, after: int) -> None:
    from wsgiref.simple_server import make_server

    from appliance.mailbox.endpoint_server import EndpointServer, QuietHandler
    from appliance.sdk.network.endpoint import wsgi_endpoint

    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise Invalid("--serve takes HOST:PORT, such as 127.0.0.1:7465")
    app = wsgi_endpoint(agent)
    with make_server(host, int(port), app, EndpointServer, QuietHandler) as server:
        server.timeout = SIGNAL_SECONDS
        agent.start()
        note(f"{agent.name} receives at http://{host}:{server.server_port}; end with Ctrl-C")
        while True:
            for row in agent.messages(after):
                session.line(msgspec.to_builtins(row), MESSAGE_COLUMNS)
                after = row.number
            server.handle_request()
