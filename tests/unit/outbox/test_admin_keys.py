"""Administration with an Idempotency-Key: each request runs once."""

import msgspec
import pytest

from appliance.kernel.errors import KeyReused
from appliance.outbox import wire

FAILED = wire.Redrive(status="dead", auto=True)


def dead(outbox, *keys):
    for key in keys:
        outbox.send(key=key)
        outbox.set(key, "dead")


def answer(outbox, verb, command, key="k", by="operator"):
    reply = outbox.admin.execute(verb, command, by, key)
    return msgspec.json.decode(reply.body), reply.replayed


def test_repeated_redrive_returns_the_first_reply(outbox):
    dead(outbox, "a", "b")
    first, replayed = answer(outbox, "redrive", FAILED)
    assert (len(first["requeued"]), replayed) == (2, False)
    dead(outbox, "c")  # it would fit the filter too
    outbox.reopen()
    assert answer(outbox, "redrive", FAILED) == (first, True)
    assert outbox.statuses()["c"] == "dead"
    assert len(outbox.statuses()) == 5
    assert len(answer(outbox, "redrive", FAILED, "another")[0]["requeued"]) == 1
    # Another's key is another key.
    assert answer(outbox, "redrive", FAILED, by="else")[0]["requeued"] == []


def test_concurrent_requests_with_one_key_redrive_once(outbox):
    """The second has chosen its sends before the first was written."""
    dead(outbox, "a")
    write = outbox.store.write
    first = []

    def racing(*args):
        if not first:
            first.append(None)
            first.append(answer(outbox, "redrive", FAILED)[0])
        return write(*args)

    outbox.store.write = racing
    reply, replayed = answer(outbox, "redrive", FAILED)
    assert (reply, replayed) == (first[1], True)
    assert len(outbox.statuses()) == 2


def test_key_of_another_request_is_refused(outbox):
    dead(outbox, "a", "b")
    answer(outbox, "drop", wire.Drop("a"))
    with pytest.raises(KeyReused):
        answer(outbox, "drop", wire.Drop("b"))
    assert outbox.statuses()["b"] == "dead"
    # A refusal and a dry run use up no key.
    with pytest.raises(wire.NoSuchSend):
        answer(outbox, "drop", wire.Drop("none"), "n")
    answer(outbox, "redrive", msgspec.structs.replace(FAILED, dry_run=True), "d")
    assert answer(outbox, "redrive", FAILED, "d")[1] is False


def test_keys_expire(new_outbox, monkeypatch):
    monkeypatch.setattr("appliance.outbox.loops.IDEMPOTENCY_HOURS", 1.0)
    outbox = new_outbox()
    dead(outbox, "a")
    answer(outbox, "redrive", FAILED)
    outbox.clock.pass_seconds(3599)
    outbox.sweep.run_once(outbox.clock.now_ms())
    assert answer(outbox, "redrive", FAILED)[1] is True
    outbox.clock.pass_seconds(2)
    outbox.sweep.run_once(outbox.clock.now_ms())
    assert answer(outbox, "redrive", FAILED)[1] is False
