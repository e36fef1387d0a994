"""Redrives with an Idempotency-Key: each request runs once."""

import msgspec
import pytest

from appliance.kernel.auth import principal_of
from appliance.kernel.errors import KeyReused
from appliance.outbox import wire
from appliance.outbox.admin import OutboxAdmin

FAILED = wire.Redrive(status="dead", auto=True)


def dead(outbox, *keys):
    for key in keys:
        outbox.send(key=key)
        outbox.set(key, "dead")


def redrive(outbox, command=FAILED, key="k", who="operator"):
    reply = OutboxAdmin(outbox.service).redrive(command, principal_of(who, who, []), key)
    return msgspec.json.decode(reply.body), reply.replayed


def test_repeated_redrive_returns_the_first_reply(outbox):
    dead(outbox, "a", "b")
    first, replayed = redrive(outbox)
    assert (len(first["requeued"]), replayed) == (2, False)
    dead(outbox, "c")  # it would fit the filter too
    outbox.reopen()
    assert redrive(outbox) == (first, True)
    assert outbox.statuses()["c"] == "dead"
    assert len(outbox.statuses()) == 5
    assert len(redrive(outbox, key="another")[0]["requeued"]) == 1
    # Another's key is another key.
    assert redrive(outbox, who="else")[0]["requeued"] == []


def test_concurrent_requests_with_one_key_redrive_once(outbox):
    """The second has chosen its sends before the first was written."""
    dead(outbox, "a")
    write = outbox.store.write
    first = []

    def racing(*args):
        if not first:
            first.append(None)
            first.append(redrive(outbox)[0])
        return write(*args)

    outbox.store.write = racing
    reply, replayed = redrive(outbox)
    assert (reply, replayed) == (first[1], True)
    assert len(outbox.statuses()) == 2


def test_key_of_another_request_is_refused(outbox):
    dead(outbox, "a", "b")
    redrive(outbox, wire.Redrive(id="a", auto=True))
    with pytest.raises(KeyReused):
        redrive(outbox, wire.Redrive(id="b", auto=True))
    assert outbox.statuses()["b"] == "dead"
    # A refusal and a dry run use up no key.
    with pytest.raises(wire.NoSuchSend):
        redrive(outbox, wire.Redrive(id="none", auto=True), "d")
    redrive(outbox, msgspec.structs.replace(FAILED, dry_run=True), "d")
    assert redrive(outbox, key="d")[1] is False
