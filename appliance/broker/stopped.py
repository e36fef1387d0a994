"""Revokes a member in a stopped broker's file."""

from appliance.audit.log.commands import CURRENT
from appliance.broker import admin_writes, queries, wire
from appliance.broker.views import member_to_wire
from appliance.kernel.clock import SystemClock
from appliance.workspace.datadir import DataDir
from appliance.workspace.stopped_store import stopped_store


def revoke_member(datadir: DataDir, slug: str, key_or_name: str) -> wire.MemberReply:
    """Revoke the member. Raises MeshNotFound, NoSuchMember, HubRunning and SchemaTooOld."""
    clock = SystemClock()
    CURRENT.get().begin()
    with stopped_store(datadir, "broker", clock) as store:
        directory = store.read(queries.directory)
        member = directory.find(directory.mesh(slug).id, key_or_name)
        store.write(admin_writes.revoke_member, member.mesh_id, member.pubkey)
        revoked_ms = member.revoked_ms or clock.now_ms()
    return wire.MemberReply(member_to_wire(member._replace(revoked_ms=revoked_ms)))
