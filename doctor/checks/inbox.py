"""Checks of the inbox: ids and times of messages, and meshes that revoked the member key."""

from collections.abc import Iterator

from appliance.checks.check import NEWEST_IDS_MAX, Check, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.kernel.clock import iso

FUTURE_MS = 60_000
NO_IDS = (
    "SELECT number FROM (SELECT number, client_message_id, broker_message_id, sender_pubkey"
    " FROM inbox ORDER BY number DESC LIMIT :newest) WHERE client_message_id = ''"
    " OR broker_message_id = '' OR length(sender_pubkey) <> 64 ORDER BY number"
)
FUTURE = "SELECT count(*), max(received_at) FROM inbox WHERE received_at > :newest"


def _ids(context: Context) -> Iterator[Finding]:
    for connection in context.with_tables("inbox", "inbox"):
        rows = connection.execute(NO_IDS, {"newest": NEWEST_IDS_MAX})
        for (number,) in rows:
            yield NO_ID.finding(
                f"inbox row {number}",
                "the message lacks its send id, its receipt from the broker, or its sender's key:"
                " another program wrote it",
            )


def _clock(context: Context) -> Iterator[Finding]:
    for connection in context.with_tables("inbox", "inbox"):
        (count, latest_ms) = connection.execute(
            FUTURE, {"newest": context.clock.now_ms() + FUTURE_MS}
        ).fetchone()
        if count:
            yield FROM_FUTURE.finding(
                "inbox",
                f"{count} messages were received in the future, up to {iso(latest_ms)}: the clock"
                " was ahead when they arrived, so they are kept longer",
            )


def _revoked(context: Context) -> Iterator[Finding]:
    for connection in context.with_tables("inbox", "revoked"):
        for mesh, key, since_ms in connection.execute(
            "SELECT mesh, pubkey, since_ms FROM revoked ORDER BY mesh"
        ):
            yield REVOKED.finding(
                f"mesh {mesh}",
                f"the broker has revoked this appliance's key {key[:16]} since {iso(since_ms)};"
                " sends to the mesh are refused",
            )


NO_ID = Problem(
    "no-id",
    "A repetition of the message isn't recognized, or its sender can't be named.",
    "There is no automatic repair. Find the program that writes to the store.",
    Severity.ERROR,
    hint="agentlip inbox list",
)
FROM_FUTURE = Problem(
    "future",
    "The clock was ahead when the messages arrived. They are removed too late.",
    "Let the system synchronize the clock. Nothing has to be repaired.",
    hint="timedatectl; date -u",
)
REVOKED = Problem(
    "revoked",
    "The mesh no longer accepts messages of this appliance, and delivers none to it.",
    "Ask an administrator of the mesh to add the key that the hint shows.",
    hint="agentlip identity show",
)
CHECKS = (
    Check(
        name="inbox.ids",
        inspects="the newest messages have a send id, a receipt and a sender",
        find=_ids,
        reads="the newest 20,000 messages in `inbox.sqlite3`",
        problems=(NO_ID,),
    ),
    Check(
        name="inbox.clock",
        inspects="no message was received in the future",
        find=_clock,
        reads="the times of the messages in `inbox.sqlite3`, by an index",
        problems=(FROM_FUTURE,),
    ),
    Check(
        name="inbox.revoked",
        inspects="no mesh has revoked this appliance's member key",
        find=_revoked,
        reads="the table `revoked` in `inbox.sqlite3`",
        problems=(REVOKED,),
    ),
)
