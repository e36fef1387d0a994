"""Implements `agentlip network group`: groups of agents, and messages to all members."""

from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Session, plain_app
from appliance.mailbox.cli_agent import FolderFlag, NameArgument, open_agent

group_app = plain_app(
    "Groups of agents: members, invitations, messages to all.\n\n"
    "Example: agentlip network group create builders"
)
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.")]
GROUP_COLUMNS = [("GROUP", "groupId"), ("NAME", "name"), ("OWNER", "owner"), ("ROLE", "role"),
                 ("MEMBERS", "memberCount")]  # fmt: skip
CHANGE_COLUMNS = [("TIME", "timestamp"), ("AGENT", "agent"), ("ACTION", "action"), ("BY", "by")]


@group_app.command("create")
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new group's name.")],
    members_invite: Annotated[
        bool, typer.Option("--members-invite", help="Let all members invite.")
    ] = False,
    admins_send: Annotated[
        bool, typer.Option("--admins-send", help="Let only the owner and admins send.")
    ] = False,
    max_members: Annotated[
        int, typer.Option("--max-members", min=1, max=50, help="Most members.")
    ] = 50,
    folder: FolderFlag = None,
) -> None:
    """Make a group with this agent as its owner.

    Example: agentlip network group create builders
    """
    with open_agent(session, folder) as agent:
        made = agent.create_group(
            name, members_can_invite=members_invite, members_can_send=not admins_send,
            max_members=max_members,
        )  # fmt: skip
    session.answer(made, f"made the group {made['groupId']}")


@group_app.command("list")
def list_groups(session: Session, folder: FolderFlag = None) -> None:
    """List the agent's groups, newest first."""
    with open_agent(session, folder) as agent:
        session.table(agent.list_groups(), GROUP_COLUMNS, "no groups")


@group_app.command("invitations")
def list_invitations(session: Session, folder: FolderFlag = None) -> None:
    """List invitations that wait for an answer."""
    columns = [("GROUP", "groupId"), ("NAME", "groupName"), ("BY", "invitedBy"),
               ("GREETING", "greeting")]  # fmt: skip
    with open_agent(session, folder) as agent:
        session.table(agent.group_invitations(), columns, "no invitations wait")


@group_app.command("invite")
def invite(
    session: Session,
    group: GroupArgument,
    name: NameArgument,
    greeting: Annotated[
        str, typer.Option("--greeting", help="A text for the other agent's owner.")
    ] = "",
    folder: FolderFlag = None,
) -> None:
    """Invite a contact to a group."""
    _change(session, folder, "invite_to_group", f"{name} has to accept", group, name, greeting)


@group_app.command("accept")
def accept(session: Session, group: GroupArgument, folder: FolderFlag = None) -> None:
    """Accept an invitation."""
    _change(session, folder, "accept_group", "joined the group", group)


@group_app.command("decline")
def decline(session: Session, group: GroupArgument, folder: FolderFlag = None) -> None:
    """Decline an invitation."""
    _change(session, folder, "decline_group", "declined the invitation", group)


@group_app.command("leave")
def leave(session: Session, group: GroupArgument, folder: FolderFlag = None) -> None:
    """Leave a group. An owner has to transfer or delete the group instead."""
    _change(session, folder, "leave_group", "left the group", group)


@group_app.command("transfer")
def transfer(
    session: Session, group: GroupArgument, name: NameArgument, folder: FolderFlag = None
) -> None:
    """Make another member the owner. The former owner becomes an admin."""
    _change(session, folder, "transfer_group", f"{name} is the owner", group, name)


@group_app.command("remove")
def remove(
    session: Session, group: GroupArgument, name: NameArgument, folder: FolderFlag = None
) -> None:
    """Remove a member, who can't read later messages, or withdraw an invitation."""
    _change(session, folder, "remove_from_group", f"removed {name}", group, name)


@group_app.command("delete")
def delete(session: Session, group: GroupArgument, folder: FolderFlag = None) -> None:
    """Delete a group. An admin can do this once the owner is unseen for seven days."""
    _change(session, folder, "delete_group", "deleted the group", group)


@group_app.command("members")
def list_members(session: Session, group: GroupArgument, folder: FolderFlag = None) -> None:
    """List a group's members."""
    columns = [("AGENT", "agent"), ("ROLE", "role"), ("JOINED", "joinedAt")]
    with open_agent(session, folder) as agent:
        session.table(agent.group_members(group), columns, "no members")


@group_app.command("changes")
def list_changes(session: Session, group: GroupArgument, folder: FolderFlag = None) -> None:
    """Verify a group's membership log, and list the changes, oldest first."""
    with open_agent(session, folder) as agent:
        rows = [msgspec.to_builtins(change) for change in agent.group_changes(group)]
    session.table(rows, CHANGE_COLUMNS, "no changes")


@group_app.command("trust")
def trust(session: Session, group: GroupArgument, folder: FolderFlag = None) -> None:
    """Trust the log that the relay shows now, after GROUP_LOG_REFUSED. Ask the members first."""
    _change(session, folder, "trust_group_log", "trusts the relay's log", group)


@group_app.command("send")
def send(
    session: Session,
    group: GroupArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The message.")],
    folder: FolderFlag = None,
) -> None:
    """Send a text to all other members. For unreachable members, the text waits for an hour.

    Example: agentlip network group send GROUP 'The build is green'
    """
    with open_agent(session, folder) as agent:
        rows = [msgspec.to_builtins(each) for each in agent.send_to_group(group, {"text": text})]
    session.table(rows, [("AGENT", "recipient"), ("STATUS", "status")], "no other members")


def _change(session: Session, folder: Any, verb: str, text: str, group: str, *more: str) -> None:
    with open_agent(session, folder) as agent:
        getattr(agent, verb)(group, *more)
    session.answer({"groupId": group}, text)
