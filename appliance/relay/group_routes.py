"""Maps the HTTP routes for groups to their verbs."""

from functools import partial

from appliance.kernel.route import Route
from appliance.network.group_log import GroupChange
from appliance.network.names import BadAgentName
from appliance.relay import group_wire as wire
from appliance.relay.group_verbs import RelayGroups
from appliance.relay.resources import Operations, reply_to_signer
from appliance.relay.service import Relay
from appliance.web.responders import Responders


def group_routes(relay: Relay) -> list[Route]:
    groups, agent = RelayGroups(relay), Operations(relay).agent
    signed = partial(reply_to_signer, relay)
    gone, stranger, role = (wire.NoSuchGroup, wire.NotAMember, wire.GroupRoleMissing)
    return [
        Route("/groups", Responders(get=signed(groups.groups), post=signed(groups.create, 201)), {
            "GET": agent("List the agent's groups", reply=list[wire.GroupEntry]),
            "POST": agent("Make a group", (wire.TooManyGroups,), status=201,
                          body=wire.CreateGroup, reply=wire.GroupCreated),
        }),
        Route("/groups/invitations", Responders(get=signed(groups.invitations)), {
            "GET": agent("List invitations that wait for the agent",
                         reply=list[wire.InvitationEntry]),
        }),
        Route("/groups/{group}", Responders(get=signed(groups.group),
                                            delete=signed(groups.dissolve)), {
            "GET": agent("Show a group", (gone, stranger), reply=wire.GroupEntry),
            "DELETE": agent("Delete a group", (gone, stranger, role, wire.OwnerPresent),
                            reply=wire.GroupDone),
        }),
        Route("/groups/{group}/invite", Responders(post=signed(groups.invite)), {
            "POST": agent("Invite a contact to a group",
                          (gone, stranger, role, BadAgentName, wire.NotContacts,
                           wire.MemberExists, wire.GroupFull, wire.TooManyGroups),
                          body=wire.InviteMember, reply=wire.GroupDone),
        }),
        Route("/groups/{group}/accept", Responders(post=signed(groups.accept)), {
            "POST": agent("Accept an invitation", (gone, wire.NoSuchInvitation, wire.GroupFull,
                                                   wire.TooManyGroups), reply=wire.GroupDone),
        }),
        Route("/groups/{group}/decline", Responders(post=signed(groups.decline)), {
            "POST": agent("Decline an invitation", (gone, wire.NoSuchInvitation),
                          reply=wire.GroupDone),
        }),
        Route("/groups/{group}/leave", Responders(post=signed(groups.leave)), {
            "POST": agent("Leave a group", (gone, wire.NoSuchMember, wire.OwnerStays),
                          reply=wire.GroupDone),
        }),
        Route("/groups/{group}/transfer", Responders(post=signed(groups.transfer)), {
            "POST": agent("Make another member the owner",
                          (gone, stranger, role, wire.NoSuchMember),
                          body=wire.TransferGroup, reply=wire.GroupDone),
        }),
        Route("/groups/{group}/members", Responders(get=signed(groups.members)), {
            "GET": agent("List members", (gone, stranger), reply=list[wire.MemberEntry]),
        }),
        Route("/groups/{group}/members/{agent}", Responders(delete=signed(groups.remove)), {
            "DELETE": agent("Remove a member, or withdraw an invitation",
                            (gone, stranger, role, wire.NoSuchMember), reply=wire.GroupDone),
        }),
        Route("/groups/{group}/changes", Responders(get=signed(groups.changes)), {
            "GET": agent("List membership changes, oldest first", (gone, stranger),
                         query=wire.ChangesQuery, reply=list[GroupChange]),
        }),
    ]  # fmt: skip
