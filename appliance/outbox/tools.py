"""The outbox's tools for agents."""

from collections.abc import Sequence

from appliance.kernel.auth import Principal
from appliance.kernel.tool import Tool
from appliance.outbox import wire
from appliance.outbox.admin import OutboxAdmin
from appliance.outbox.service import Outbox


def tools(outbox: Outbox, admin: OutboxAdmin) -> Sequence[Tool]:
    def send(arguments: wire.Send, who: Principal) -> wire.Accepted:
        return outbox.send(arguments, None, principal=who.label)[1]

    def inspect(arguments: wire.InspectQuery, _who: Principal) -> wire.OutboxSend:
        return outbox.inspect(arguments.id)

    def drop(arguments: wire.Drop, _who: Principal) -> wire.DropResult:
        return admin.drop(arguments)

    return [
        Tool(
            "outbox_send", "Send a message",
            "Send to a mesh's members, topics or queues, or by mail; retried until delivered. "
            "One client_message_id is sent once.",
            wire.Send, None, wire.SEND, send, "adds",
        ),
        Tool(
            "outbox_inspect", "A send's state", "One send by its id or client_message_id.",
            wire.InspectQuery, None, wire.READ, inspect,
        ),
        Tool(
            "outbox_drop", "Drop a send", "Retire a send that was not delivered.",
            wire.Drop, None, wire.ADMIN, drop, "replaces", idempotent=True, audited=True,
        ),
    ]  # fmt: skip
