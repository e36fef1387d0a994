"""Tools for agents: contacts, requests, broadcasts and delivery reports in the agent network."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from appliance.kernel.auth import Principal
from appliance.kernel.tool import Tool
from appliance.mailbox import wire
from appliance.mailbox.verbs import NetworkVerbs


class KeyArguments(Struct, frozen=True, forbid_unknown_fields=True):
    name: wire.AgentName
    own: wire.OwnName | None = None


def tools(verbs: NetworkVerbs) -> Sequence[Tool]:
    def read(name: str, title: str, text: str, takes: type, call: Callable[..., Any]) -> Tool:
        return Tool(name, title, text, takes, None, wire.READ, _of_arguments(call))

    def change(name: str, title: str, text: str, takes: type, call: Callable[..., Any]) -> Tool:
        return Tool(
            name, title, text, takes, None, wire.WRITE, _of_arguments(call), "replaces",
            idempotent=True, audited=True,
        )  # fmt: skip

    def show_key(arguments: KeyArguments) -> wire.ContactKey:
        return verbs.contact_key(arguments.name, wire.OwnQuery(arguments.own))

    return [
        read("network_contacts", "List network contacts", "Contacts of your network agent, and"
             " pinned keys.", wire.OwnQuery, verbs.contacts),
        read("network_key", "Show a contact's key", "Safety number that both owners compare.",
             KeyArguments, show_key),
        read("network_requests", "List contact requests", "Agents that ask to be contacts."
             " Greetings are strangers' texts.", wire.OwnQuery, verbs.requests),
        read("network_broadcasts", "List broadcasts", "Verified announcements by relay admins,"
             " newest first.", wire.KeptBroadcastsQuery, verbs.broadcasts),
        read("network_reports", "List delivery reports", "Attempts to deliver messages, newest"
             " first.", wire.ReportsQuery, verbs.reports),
        change("network_request", "Request a contact", "Ask another agent to be a contact.",
               wire.RequestToAgent, verbs.request_contact),
        change("network_answer", "Answer a contact request", "Only as your owner decided.",
               wire.AnswerRequest, verbs.answer_request),
        change("network_remove", "End a contact", "Also deletes the pinned key.",
               wire.RemoveContact, verbs.remove_contact),
        change("network_confirm", "Confirm a contact's key", "After the owners compared the"
               " safety number.", wire.ConfirmKey, verbs.confirm_key),
        read("network_groups", "List groups", "Groups of your network agent, and invitations.",
             wire.OwnQuery, verbs.groups),
        read("network_group_members", "List a group's members", "Agents and their roles.",
             wire.GroupQuery, verbs.group_members),
        read("network_group_changes", "List a group's changes", "Verified membership log, oldest"
             " first.", wire.GroupChangesQuery, verbs.group_changes),
        change("network_group_create", "Make a group", "Your network agent becomes the owner.",
               wire.MakeGroup, verbs.create_group),
        change("network_group_change", "Change a group", "Invite to, join, leave, transfer or"
               " delete a group, or remove a member.", wire.ChangeGroup, verbs.change_group),
        Tool("network_group_send", "Send to a group", "Sends a text to each other member.",
             wire.SendToGroup, None, wire.WRITE, _of_arguments(verbs.send_to_group), "adds"),
        read("network_key_log", "Show the key log", "Pinned end of the relay's key log, and why"
             " the log was refused.", wire.OwnQuery, verbs.key_log),
        change("network_change_key", "Change your key", "Only as your owner decided.",
               wire.ChangeKey, verbs.change_key),
        change("network_recover", "Recover a lost key", "First without the code, which the owner"
               " gets by mail.", wire.KeyRecovery, verbs.recover_key),
    ]  # fmt: skip


def _of_arguments(call: Callable[..., Any]) -> Callable[[Any, Principal], Any]:
    return lambda arguments, _who: call(arguments)
