"""Changes asks, inside their transactions: the row and its message are written together."""

import secrets
from collections.abc import Sequence

import msgspec

from appliance.hub import wire as hub_wire
from appliance.hub import writes as hub_writes
from appliance.hub.addressing import Addressing
from appliance.hub.ask import queries, states, wire
from appliance.hub.ask.access import Answerer, may_answer
from appliance.hub.ask.queries import StoredAsk
from appliance.hub.events import encode
from appliance.hub.rows import AskRow
from appliance.kernel import meta
from appliance.kernel.batch import Tx
from appliance.kernel.errors import KeyReused
from appliance.kernel.idempotency import Reply

CHANNEL, TOPIC = "asks", "questions"  # where asks are that name no topic
WAITING_MAX = 100  # one token's asks that wait for an answer
APPLIANCE = "appliance"  # the sender for replies that nobody wrote
PRINCIPAL = "appliance:ask"  # no token has this name
LINK_KEY = "x_ask_link_key"  # in the store's table `meta`
LINK_KEY_BYTES = 32
SETTLED_MAX = 100  # deadlines settled in one transaction

_message = msgspec.json.Decoder(hub_wire.MessageChanged).decode


class AskIdentity(msgspec.Struct, frozen=True):
    """The asking principal, and the idempotency key with the request's fingerprint."""

    principal_id: str
    principal: str | None
    key: str | None
    fingerprint: str


def create(
    tx: Tx,
    command: wire.CreateAsk,
    identity: AskIdentity,
    topic_id: str | None,
    mail_to: Sequence[str] = (),
) -> Reply:
    """Create an ask. `topic_id`: the question's topic; None: one in CHANNEL, which is created if
    needed. A repeated key gives the first ask, in its current state."""
    former = _by_key(tx, identity)
    if former is not None:
        return Reply(200, _encode_shown(tx, former), replayed=True)
    sql = "SELECT count(*) FROM x_asks WHERE principal_id = ? AND state = 'waiting'"
    (waiting,) = tx.execute(sql, (identity.principal_id,)).fetchone()
    if waiting >= WAITING_MAX:
        raise wire.TooManyAsks(details={"limit": WAITING_MAX})
    if topic_id is None:
        topic_id = hub_writes.find_or_create_topic(tx, CHANNEL, TOPIC, identity.principal)
    ask_id = tx.new_id("ask_")
    content = _question(command, ask_id)
    posted = hub_writes.create_message(tx, topic_id, command.sender, content, identity.principal)
    message = _message(posted.body).message
    seconds = command.deadline_seconds
    row = AskRow(
        id=ask_id,
        message_id=message.id,
        channel_id=message.channel_id,
        state="waiting",
        asker=command.sender,
        principal=identity.principal,
        principal_id=identity.principal_id,
        key=identity.key,
        fingerprint=identity.fingerprint,
        text=command.text,
        choices_json=encode(command.choices).decode(),
        default_answer=command.default,
        may_answer_json=encode(command.may_answer).decode(),
        blocks_json=encode(command.blocks).decode(),
        mail_to_json=encode(list(mail_to)).decode(),
        mailed=int(not mail_to),
        created_at=tx.now,
        due_steady_ms=None if seconds is None else tx.steady_ms + seconds * 1000,
        answer=None,
        settled_by=None,
        settled_principal=None,
        settled_via=None,
        settled_at=None,
        reply_id=None,
    )
    marks = ", ".join("?" * len(row))
    tx.execute(f"INSERT INTO x_asks ({queries.COLUMNS}) VALUES ({marks})", row)
    return Reply(201, _encode_shown(tx, StoredAsk(row, topic_id)))


def answer(tx: Tx, ask_id: str, text: str, who: Answerer) -> Reply:
    ask = queries.find(tx, ask_id)
    if not may_answer(ask, who):
        raise wire.MayNotAnswer(details={"ask_id": ask_id, "may_answer": ask.may_answer})
    _check_waiting(ask)
    if ask.choices and text not in ask.choices:
        raise wire.NotAChoice(details={"choices": ask.choices})
    due = ask.row.due_steady_ms
    if due is not None and due <= tx.steady_ms:
        raise wire.AskSettled("this ask's deadline has passed", details={"ask_id": ask_id})
    return Reply(200, _settle(tx, ask, states.ANSWER, text, who))


def cancel(tx: Tx, ask_id: str, principal_id: str | None, who: Answerer) -> Reply:
    """Cancel an ask. `principal_id`: only this principal's ask; None: anybody's."""
    ask = queries.find(tx, ask_id)
    if principal_id is not None and principal_id != ask.row.principal_id:
        raise wire.NotYourAsk(details={"ask_id": ask_id})
    _check_waiting(ask)
    return Reply(200, _settle(tx, ask, states.CANCEL, None, who))


def link_key(tx: Tx) -> str:
    """Return the secret behind all links, in hexadecimal digits. The first call makes it."""
    key = meta.value(tx, LINK_KEY)
    if key is None:
        key = secrets.token_hex(LINK_KEY_BYTES)
        tx.execute(meta.SET, (LINK_KEY, key))
    return key


def note_mailed(tx: Tx, ids: Sequence[str]) -> None:
    tx.executemany("UPDATE x_asks SET mailed = 1 WHERE id = ?", [(ask_id,) for ask_id in ids])


def settle_due(tx: Tx) -> int:
    """Settle asks whose deadline has passed, at most SETTLED_MAX; returns how many."""
    rows: Sequence[tuple[str]] = tx.execute(
        "SELECT id FROM x_asks WHERE state = 'waiting' AND due_steady_ms <= ?"
        " ORDER BY due_steady_ms LIMIT ?",
        (tx.steady_ms, SETTLED_MAX),
    ).fetchall()
    for (ask_id,) in rows:
        ask = queries.find(tx, ask_id)
        default = ask.row.default_answer
        event = states.EXPIRE if default is None else states.DEFAULT
        _settle(tx, ask, event, default, Answerer(APPLIANCE, PRINCIPAL, "deadline"))
    return len(rows)


def _settle(tx: Tx, ask: StoredAsk, event: str, answer: str | None, who: Answerer) -> bytes:
    """Write the reply and the new state; the ask as JSON."""
    row = ask.row
    state = states.ASK.after(row.state, event)
    reply_id = None
    if ask.topic_id:  # else a recovery lost the question
        content = _reply(state, answer, row.id)
        asker = Addressing(mentioned=(row.asker,))
        posted = hub_writes.create_message(
            tx, ask.topic_id, who.sender, content, who.principal, addressed=asker
        )
        reply_id = _message(posted.body).message.id
    settled = {
        "state": state, "answer": answer, "settled_by": who.sender, "settled_via": who.via,
        "settled_principal": who.principal, "settled_at": tx.now, "reply_id": reply_id,
    }  # fmt: skip
    marks = ", ".join(f"{name} = ?" for name in settled)
    sql = f"UPDATE x_asks SET {marks} WHERE id = ? AND state = 'waiting'"
    changed = tx.execute(sql, (*settled.values(), row.id)).rowcount
    if changed != 1:
        raise _make_refusal(queries.find(tx, row.id))
    return _encode_shown(tx, queries.find(tx, row.id))


def _check_waiting(ask: StoredAsk) -> None:
    if ask.row.state != states.WAITING:
        raise _make_refusal(ask)


def _make_refusal(ask: StoredAsk) -> wire.AskSettled:
    row = ask.row
    details = {
        "ask_id": row.id, "state": row.state, "answer": row.answer,
        "answered_by": row.settled_by, "settled_at": row.settled_at,
    }  # fmt: skip
    return wire.AskSettled(f"this ask is already {row.state}", details=details)


def _by_key(tx: Tx, identity: AskIdentity) -> StoredAsk | None:
    """Return the ask by its key. Raises KeyReused if the request with this key was different."""
    if identity.key is None:
        return None
    sql = "SELECT id, fingerprint FROM x_asks WHERE principal_id = ? AND key = ?"
    row = tx.execute(sql, (identity.principal_id, identity.key)).fetchone()
    if row is None:
        return None
    if row[1] != identity.fingerprint:
        raise KeyReused
    return queries.find(tx, row[0])


def _encode_shown(tx: Tx, ask: StoredAsk) -> bytes:
    return encode(wire.AskShown(queries.to_wire(ask, tx.now_ms - tx.steady_ms)))


def _question(command: wire.CreateAsk, ask_id: str) -> str:
    lines = [command.text, ""]
    if command.choices:
        lines.append("Choices: " + " | ".join(command.choices))
    if command.deadline_seconds is not None:
        then = "no answer" if command.default is None else command.default
        lines.append(f"After {command.deadline_seconds} s: {then}")
    if command.blocks:
        lines.append("Blocks: " + ", ".join(command.blocks))
    return "\n".join([*lines, f"Answer with: agentlip ask answer {ask_id} ANSWER"])


def _reply(state: str, answer: str | None, ask_id: str) -> str:
    if answer is None:
        return f"No answer ({state}; {ask_id})"
    return f"{answer}\n\n({state}; {ask_id})"
