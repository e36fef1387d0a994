"""Implements the verbs for the appliance's agents, behind the routes and tools."""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import msgspec

from appliance.kernel.errors import Invalid
from appliance.kernel.threads import in_thread
from appliance.mailbox import wire
from appliance.mailbox.service import Mailbox
from appliance.network.keys import AgentPublicKey
from appliance.network.safety import fingerprint
from appliance.sdk.network.agent import NetworkAgent
from appliance.sdk.network.contact_verbs import ANSWERS
from appliance.sdk.network.key_verbs import KeyLogEnd
from appliance.sdk.network.peers import NotAContact
from appliance.sdk.network.pins import KeyChanged, PinState
from appliance.sdk.network.relay_client import RelayUnreachable

T = TypeVar("T")


class NetworkVerbs:
    """Each verb raises NoNetworkAgent; verbs that change contacts raise the relay's errors."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    def agents(self) -> wire.OwnAgentList:
        return wire.OwnAgentList([
            wire.OwnAgent(
                name, agent.config.relay, agent.config.endpoint,
                fingerprint(AgentPublicKey.of(agent.public_key)), agent.problem,
            )
            for name, agent in sorted(self._mailbox.agents.items())
        ])  # fmt: skip

    def contacts(self, query: wire.OwnQuery) -> wire.ContactList:
        """Return the contacts as the last heartbeat has read them."""
        agent = self._mailbox.sender(query.own)
        return wire.ContactList(list(agent.peers.contacts.values()), agent.pins())

    def contact_key(self, name: str, query: wire.OwnQuery) -> wire.ContactKey:
        """Return the key of a contact or requester. Raises NotAContact."""
        agent = self._mailbox.sender(query.own)
        key, state = _find_key(agent, name)
        number = in_thread(agent.safety_number_with, key)
        return wire.ContactKey(name, state, number, fingerprint(AgentPublicKey.of(key)))

    def requests(self, query: wire.OwnQuery) -> wire.RequestList:
        return wire.RequestList(self._mailbox.sender(query.own).requests.waiting())

    def broadcasts(self, query: wire.KeptBroadcastsQuery) -> wire.BroadcastList:
        agent = self._mailbox.sender(query.own)
        return wire.BroadcastList(agent.broadcasts(query.before, query.limit, query.type))

    def reports(self, query: wire.ReportsQuery) -> wire.ReportList:
        """Return delivery reports. Raises NoSuchReport."""
        agent = self._mailbox.sender(query.own)
        reports = [agent.report(query.id)] if query.id else agent.reports()
        rows = (
            report
            for report in reports
            if not query.waiting or report.status in ("pending", "sending")
        )
        return wire.ReportList(list(islice(rows, query.limit)))

    def request_contact(self, command: wire.RequestToAgent) -> wire.ContactChanged:
        self._mailbox.sender(command.own).request_contact(command.name, command.greeting)
        return wire.ContactChanged(command.name)

    def answer_request(self, command: wire.AnswerRequest) -> wire.ContactChanged:
        """Answer a request. A request that was listed is only answered if the relay still shows its
        key. Raises NoSuchRequest."""
        agent = self._mailbox.sender(command.own)
        listed = [each for each in agent.requests.waiting() if each.agent == command.name]
        if not listed:
            ANSWERS[command.answer](agent, command.name)
        elif not agent.answer_requests(listed, command.answer):
            raise wire.NoSuchRequest
        return wire.ContactChanged(command.name)

    def remove_contact(self, command: wire.RemoveContact) -> wire.ContactChanged:
        self._mailbox.sender(command.own).remove_contact(command.name)
        return wire.ContactChanged(command.name)

    def confirm_key(self, command: wire.ConfirmKey) -> wire.ContactChanged:
        """Confirm the pinned key, or accept the changed one. Raises KeyChanged if the relay shows
        another key."""
        agent = self._mailbox.sender(command.own)
        key, _ = _find_key(agent, command.name)
        if command.accept:
            agent.accept_key(command.name, command.fingerprint)
        elif fingerprint(AgentPublicKey.of(key)) != command.fingerprint:
            raise KeyChanged(details={"agent": command.name})
        else:
            agent.confirm_key(command.name)
        return wire.ContactChanged(command.name)

    # -- groups and keys -------------------------------------------------------------------------

    def groups(self, query: wire.OwnQuery) -> wire.GroupList:
        agent = self._mailbox.sender(query.own)
        return wire.GroupList(
            _convert(agent.list_groups(), wire.ListedGroup),
            _convert(agent.group_invitations(), wire.GroupInvitation),
        )

    def group_members(self, query: wire.GroupQuery) -> wire.GroupMemberList:
        rows = self._mailbox.sender(query.own).group_members(query.group)
        return wire.GroupMemberList(_convert(rows, wire.GroupMember))

    def group_changes(self, query: wire.GroupChangesQuery) -> wire.GroupChangeList:
        """Verify the whole log, and return the newest changes. Raises GroupLogRefused."""
        changes = self._mailbox.sender(query.own).group_changes(query.group)
        return wire.GroupChangeList(changes[-query.limit :])

    def create_group(self, command: wire.MakeGroup) -> wire.GroupChanged:
        made = self._mailbox.sender(command.own).create_group(
            command.name, members_can_invite=command.members_can_invite,
            members_can_send=command.members_can_send, max_members=command.max_members,
        )  # fmt: skip
        return wire.GroupChanged(str(made["groupId"]))

    def change_group(self, command: wire.ChangeGroup) -> wire.GroupChanged:
        """Carry out an action. Raises GroupLogRefused."""
        agent, name = self._mailbox.sender(command.own), command.name
        if (name is None) == (command.action in NAMED):
            raise Invalid(f"`name` is required for {', '.join(NAMED)}, and refused otherwise")
        if name is None:
            UNNAMED[command.action](agent, command.group)
        elif command.action == "invite":
            agent.invite_to_group(command.group, name, command.greeting)
        else:
            NAMED[command.action](agent, command.group, name)
        return wire.GroupChanged(command.group)

    def send_to_group(self, command: wire.SendToGroup) -> wire.ReportList:
        agent = self._mailbox.sender(command.own)
        return wire.ReportList(agent.send_to_group(command.group, {"text": command.text}))

    def key_log(self, query: wire.OwnQuery) -> KeyLogEnd:
        return self._mailbox.sender(query.own).read_key_log()

    def change_key(self, command: wire.ChangeKey) -> wire.OwnKey:
        agent = self._mailbox.sender(command.own)
        KEY_ACTIONS[command.action](agent)
        return wire.OwnKey(agent.public_key, fingerprint(AgentPublicKey.of(agent.public_key)))

    def recover_key(self, command: wire.KeyRecovery) -> wire.Recovery:
        agent = self._mailbox.sender(command.own)
        if command.code:
            return wire.Recovery("begun", agent.recover(command.email, command.code))
        agent.request_code(command.email)
        return wire.Recovery("code-sent")


UNNAMED: dict[wire.GroupAction, Callable[[NetworkAgent, str], None]] = {
    "accept": NetworkAgent.accept_group, "decline": NetworkAgent.decline_group,
    "leave": NetworkAgent.leave_group, "delete": NetworkAgent.delete_group,
    "trust": NetworkAgent.trust_group_log,
}  # fmt: skip
NAMED: dict[wire.GroupAction, Callable[[NetworkAgent, str, str], None]] = {
    "invite": NetworkAgent.invite_to_group, "transfer": NetworkAgent.transfer_group,
    "remove": NetworkAgent.remove_from_group,
}  # fmt: skip
KEY_ACTIONS: dict[str, Callable[[NetworkAgent], object]] = {
    "rotate": NetworkAgent.rotate_key, "cancel-recovery": NetworkAgent.cancel_recovery,
    "accept-log": partial(NetworkAgent.read_key_log, accept=True),
}  # fmt: skip


def _convert(rows: list[dict[str, Any]], kind: type[T]) -> list[T]:
    try:
        return [msgspec.convert(row, kind) for row in rows]
    except msgspec.ValidationError:
        raise RelayUnreachable("the relay's response is malformed") from None


def _find_key(agent: NetworkAgent, name: str) -> tuple[str, PinState | None]:
    """Return the key that the relay shows, and the pin's state. Raises NotAContact."""
    pin = next((pin for pin in agent.pins() if pin.agent == name), None)
    if pin is not None:
        return pin.offered or pin.key, pin.state
    for request in agent.requests.waiting():
        if request.agent == name:
            return request.public_key, None
    raise NotAContact(details={"name": name})
