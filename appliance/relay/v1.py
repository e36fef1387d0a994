"""Serves protocol version 1 for 30 days: messages rest on the relay until acked.

Only this module stores bodies. The option `v1` switches the version on. The days count from the
first start with the option; afterwards, and without the option, the routes answer 410, and messages
that nobody has acked go to files.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from appliance.kernel import meta
from appliance.kernel.batch import Tx
from appliance.kernel.clock import DAY_MS
from appliance.kernel.errors import Conflict, Exhausted, Forbidden, Invalid
from appliance.kernel.meta import Executor
from appliance.kernel.whole_file import write_whole
from appliance.network.encoding import is_current
from appliance.relay import wire, writes
from appliance.relay.service import Relay
from appliance.relay.states import ACTIVE

DAYS = 30
SINCE = "v1_since_ms"
INBOX_MAX = 1_000  # messages that wait for an agent
LISTED_MAX = 100
ACKED_MAX = 1_000
ARCHIVED_MAX = 50  # messages in one archive file, at most 20 MB
TEXT_MAX = 65_536
Short = Annotated[str, Meta(min_length=1, max_length=200)]


class V1Gone(Invalid):
    code = "V1_GONE"
    status = 410
    default_message = (
        "protocol version 1 is not served any more: move to version 2, which "
        "docs/reference/relay.md describes"
    )
    default_hint = "agentlip network init NAME --relay URL --endpoint URL"


class V1NonceUsed(Conflict):
    code = "NONCE_USED"
    default_message = "this nonce was used before"
    default_hint = "send the message with a new nonce"


class V1InboxFull(Exhausted):
    code = "INBOX_FULL"
    default_message = "too many messages wait for this agent"
    default_hint = "send it again later, or use version 2"


class V1NotYours(Forbidden):
    default_message = "an agent may use only its own name and inbox"
    default_hint = "sign the request as that agent"


class V1Message(Struct, frozen=True, rename="camel"):
    from_: Short = msgspec.field(name="from")
    to: Short
    type: Short
    text: Annotated[str, Meta(max_length=TEXT_MAX)]
    message_id: Short
    nonce: Short
    timestamp: Short
    signature: Short


class V1Ack(Struct, frozen=True, rename="camel"):
    message_ids: Annotated[list[Short], Meta(max_length=ACKED_MAX)]


class V1Messages:
    """The verbs in version 1. A message's own signature is for its recipient."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def send(self, command: V1Message, sender: str) -> wire.Done:
        if command.from_ != sender:
            raise V1NotYours
        try:
            current = is_current(command.timestamp, self._relay.clock.now_ms())
        except (ValueError, OverflowError):
            current = False
        if not current:
            raise Invalid("the message's timestamp is more than 5 minutes from the relay's time")
        self._relay.check_may_see(command.to, sender)
        row = self._relay.directory.agents.get(command.to)
        if row is None or row.status != ACTIVE:
            raise wire.NoSuchAgent
        body = msgspec.json.encode(command).decode()
        arguments = (command.to, sender, command.message_id, command.nonce, body)
        self._relay.write(sender, add, *arguments)
        return wire.Done()

    def inbox(self, agent: str, signer: str) -> list[msgspec.Raw]:
        if agent != signer:
            raise V1NotYours
        return self._relay.store.read(waiting, agent)

    def ack(self, agent: str, command: V1Ack, signer: str) -> wire.Done:
        if agent != signer:
            raise V1NotYours
        self._relay.write(signer, ack, agent, command.message_ids)
        return wire.Done()


# -- changes and reads -------------------------------------------------------------------


def begin(tx: Tx) -> int:
    """Note when version 1 is switched on first; return when it ends."""
    since = meta.value(tx, SINCE)
    if since is None:
        tx.execute(meta.SET, (SINCE, str(tx.now_ms)))
    return int(since or tx.now_ms) + DAYS * DAY_MS


def add(tx: Tx, recipient: str, sender: str, message_id: str, nonce: str, body: str) -> None:
    (waiting,) = tx.execute(
        "SELECT count(*) FROM v1_messages WHERE recipient = ? AND body IS NOT NULL", (recipient,)
    ).fetchone()
    if waiting >= INBOX_MAX:
        raise V1InboxFull
    inserted = tx.execute(
        "INSERT INTO v1_messages (recipient, sender, message_id, nonce, body, at_ms)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (recipient, sender, message_id, nonce, body, tx.now_ms),
    )
    if inserted.rowcount == 0:
        raise V1NonceUsed


def ack(tx: Tx, recipient: str, message_ids: list[str]) -> None:
    """Empty the messages. Nonces stay used."""
    tx.executemany(
        "UPDATE v1_messages SET body = NULL WHERE recipient = ? AND message_id = ?",
        [(recipient, message_id) for message_id in message_ids],
    )


def archive(folder: Path, bodies: Sequence[str]) -> str:
    """Write messages to a file, one a line; return the file's name, which is its SHA-256. Another
    attempt writes the same file."""
    content = "".join(f"{body}\n" for body in bodies).encode()
    name = f"{hashlib.sha256(content).hexdigest()}.jsonl"
    folder.mkdir(mode=0o700, exist_ok=True)
    write_whole(folder / name, content)
    return name


def remove_archived(tx: Tx, numbers: Sequence[int], file: str) -> int:
    """Delete messages that are in the file, and record the file in the log."""
    writes.record(tx, "v1.archived", file)
    tx.executemany("DELETE FROM v1_messages WHERE number = ?", [(number,) for number in numbers])
    return len(numbers)


def remove_acked(tx: Tx, limit: int) -> int:
    return tx.execute(
        "DELETE FROM v1_messages WHERE number IN"
        " (SELECT number FROM v1_messages WHERE body IS NULL LIMIT ?)",
        (limit,),
    ).rowcount


def list_unread(reader: Executor) -> list[tuple[int, str]]:
    """Return the oldest messages that nobody has acked: number and body."""
    return list(
        reader.execute(
            "SELECT number, body FROM v1_messages WHERE body IS NOT NULL ORDER BY number LIMIT ?",
            (ARCHIVED_MAX,),
        )
    )


def waiting(reader: Executor, recipient: str) -> list[msgspec.Raw]:
    rows = reader.execute(
        "SELECT body FROM v1_messages WHERE recipient = ? AND body IS NOT NULL ORDER BY number"
        " LIMIT ?",
        (recipient, LISTED_MAX),
    )
    return [msgspec.Raw(body.encode()) for (body,) in rows]
