"""Defines the requests, replies and errors for groups, as clients see them."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from appliance.kernel.errors import Conflict, Forbidden, Invalid, Missing
from appliance.relay.wire import GREETING_MAX, Name

MEMBERS_MAX = 50
ABSENT_DAYS = 7  # how long an owner is unseen before an admin may delete the group

GroupName = Annotated[str, Meta(min_length=1, max_length=64)]
GroupRole = Literal["owner", "admin", "member"]


class GroupSettings(Struct, frozen=True, rename="camel"):
    """The owner's choices. Senders and recipients check `membersCanSend`, not the relay. More
    than 50 `maxMembers` become 50."""

    members_can_invite: bool = False
    members_can_send: bool = True
    max_members: Annotated[int, Meta(ge=1, le=10_000)] = MEMBERS_MAX


class CreateGroup(Struct, frozen=True):
    name: GroupName
    settings: GroupSettings | None = None


class InviteMember(Struct, frozen=True):
    agent: Name
    greeting: Annotated[str, Meta(max_length=GREETING_MAX)] | None = None


class TransferGroup(Struct, frozen=True, rename="camel"):
    new_owner: Name


class ChangesQuery(Struct, frozen=True):
    """A page with at most 500 changes, oldest first, after the time `since`."""

    since: Annotated[str, Meta(max_length=40)] = "1970-01-01T00:00:00Z"


class GroupCreated(Struct, frozen=True, rename="camel"):
    group_id: str
    name: str
    owner: str
    settings: GroupSettings
    created_at: str
    ok: bool = True


class GroupDone(Struct, frozen=True):
    status: Literal[
        "invited", "accepted", "declined", "left", "transferred", "removed", "dissolved"
    ]
    ok: bool = True


class GroupEntry(Struct, frozen=True, rename="camel"):
    """A group. `role`: the caller's. `head`: the newest change's hash."""

    group_id: str
    name: str
    owner: str
    role: GroupRole
    settings: GroupSettings
    member_count: int
    head: str
    created_at: str
    status: Literal["active"] = "active"
    ok: bool = True


class MemberEntry(Struct, frozen=True, rename="camel"):
    agent: str
    role: GroupRole
    joined_at: str


class InvitationEntry(Struct, frozen=True, rename="camel"):
    group_id: str
    group_name: str
    invited_by: str
    greeting: str | None
    created_at: str


# -- errors ------------------------------------------------------------------------------


class NoSuchGroup(Missing):
    default_message = "no such group, or the group was deleted"
    default_hint = "GET /groups lists the agent's groups"


class NoSuchInvitation(Missing):
    default_message = "no invitation to this group waits"
    default_hint = "GET /groups/invitations lists the agent's invitations"


class NoSuchMember(Missing):
    default_message = "no such member"
    default_hint = "GET /groups/GROUP/members lists the members"


class NotAMember(Forbidden):
    code = "NOT_A_MEMBER"
    default_message = "only members may do this"
    default_hint = "GET /groups lists the agent's groups"


class GroupRoleMissing(Forbidden):
    code = "GROUP_ROLE_MISSING"
    default_message = "the agent's role in this group does not allow this"
    default_hint = "GET /groups/GROUP/members shows the roles; ask the group's owner"


class OwnerStays(Invalid):
    code = "OWNER_STAYS"
    default_message = "the owner can't leave the group"
    default_hint = "transfer the group first, or delete the group"


class OwnerPresent(Forbidden):
    code = "OWNER_PRESENT"
    default_message = "an admin can delete the group only once the owner is unseen for 7 days"
    default_hint = "ask the owner, or leave the group"


class NotContacts(Forbidden):
    code = "NOT_CONTACTS"
    default_message = "an agent can invite only its contacts"
    default_hint = "POST /contacts/request; the other agent has to accept"


class MemberExists(Conflict):
    code = "ALREADY_EXISTS"
    default_message = "the agent is a member, or an invitation waits"
    default_hint = "GET /groups/GROUP/members lists the members"


class GroupFull(Invalid):
    code = "GROUP_FULL"
    default_message = "the group has as many members and invitations as allowed"
    default_hint = "remove a member, or make another group"


class TooManyGroups(Invalid):
    code = "TOO_MANY_GROUPS"
    default_message = "the agent is in too many groups, or too many invitations wait"
    default_hint = "leave groups or decline invitations first"
