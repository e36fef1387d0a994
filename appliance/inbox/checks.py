"""Checks the inbox: message ids, and meshes that revoked the member key."""

from appliance.checks.check import Check, Problem, Severity
from appliance.checks.rows import RowRule, find_rows
from appliance.inbox.wire import NETWORK

NO_ID = Problem("no-id", Severity.ERROR, hint="agentlip inbox list")
REVOKED = Problem("revoked", hint="agentlip identity show")
CHECKS = (
    Check(
        name="inbox.ids",
        inspects="the newest messages have a send id, a receipt and a sender",
        find=find_rows(
            "inbox",
            RowRule(
                NO_ID,
                "SELECT number FROM (SELECT number, client_message_id, broker_message_id, mesh,"
                " sender_pubkey FROM inbox ORDER BY number DESC LIMIT :newest)"
                " WHERE client_message_id = '' OR broker_message_id = ''"
                # A version 1 message in the agent network has no key.
                f" OR iif(mesh = '{NETWORK}', length(sender_pubkey) NOT IN (0, 60),"
                " length(sender_pubkey) <> 64) ORDER BY number",
                "inbox row {0}",
                "the message lacks a send id, a broker receipt or a sender key: another program "
                "wrote the row",
                ("inbox",),
            ),
        ),
        problems=(NO_ID,),
    ),
    Check(
        name="inbox.revoked",
        inspects="no mesh has revoked this appliance's member key",
        find=find_rows(
            "inbox",
            RowRule(
                REVOKED,
                "SELECT mesh, substr(pubkey, 1, 16), since_ms FROM revoked ORDER BY mesh",
                "mesh {0}",
                "the broker has revoked this appliance's key {1} since {2}; sends to the mesh are"
                " refused",
                ("revoked",),
                times=(2,),
            ),
        ),
        problems=(REVOKED,),
    ),
)  # fmt: skip
