"""Whether this member may send to a mesh: as a broker elsewhere said, or as the one here knows."""

from types import SimpleNamespace

import pytest

from appliance.broker import wire as broker_wire
from appliance.integrations.outbox_broker import MeshSendPermission

OWN = SimpleNamespace(public_hex="own")
KEYS = SimpleNamespace(in_mesh=lambda _mesh: OWN)


class FakeInbox:
    def __init__(self):
        self.revoked = {}

    def note_revoked(self, mesh, pubkey):
        self.revoked[mesh] = pubkey


def broker_with(error):
    """A broker that has the mesh `lab`, whose directory raises this for our key."""

    def member(_mesh_id, _pubkey):
        if error:
            raise error

    directory = SimpleNamespace(by_slug={"lab": SimpleNamespace(id=1)}, member=member)
    return SimpleNamespace(directory=directory)


def test_revocation_by_a_broker_elsewhere_holds_for_the_present_key():
    inbox = FakeInbox()
    permission = MeshSendPermission(inbox, None, KEYS, ["far"])
    permission.on_revoked("far", "former")
    permission.on_revoked("unknown", "own")
    assert permission.refusal("far") is None
    permission.on_revoked("far", "own")
    assert permission.refusal("far").details == {"mesh": "far", "member": "own"}


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (None, False),
        (broker_wire.NotAMember(), False),
        (broker_wire.MemberIsRevoked(details={"successor": "new"}), False),
        (broker_wire.MemberIsRevoked(), True),
    ],
)
def test_permission_for_a_mesh_of_this_broker_comes_from_it(error, refused):
    permission = MeshSendPermission(None, broker_with(error), KEYS, ["far"])
    assert (permission.refusal("lab") is not None) is refused
    assert permission.refusal("elsewhere") is permission.refusal("far") is None
