"""Single sends, and their chains of redrives."""

from tests.support.outbox import dead, redrive


def test_repeated_redrives_form_one_chain(outbox):
    dead(outbox)
    ids = ["k1"]
    for _ in range(3):
        (row,) = redrive(outbox, ids[-1])
        outbox.set(row.new_client_message_id, "dead")
        ids.append(row.new_client_message_id)
    assert len(set(ids)) == 4
    for key in ids:
        chain = outbox.service.inspect(key).chain
        assert [row.client_message_id for row in chain] == ids
        assert [row.status for row in chain] == ["aborted"] * 3 + ["dead"]
