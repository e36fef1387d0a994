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


def test_cycle_of_rows_in_a_damaged_file_ends_the_chain(outbox):
    dead(outbox, "k1")
    dead(outbox, "k2")
    for row, other in (("k1", "k2"), ("k2", "k1")):
        outbox.set(row, "aborted", superseded_by=outbox.service.inspect(other).send.id)
    chain = outbox.service.inspect("k1").chain
    assert [row.client_message_id for row in chain] == ["k1", "k2"]


def test_long_chain_is_cut_at_its_beginning(outbox, monkeypatch):
    monkeypatch.setattr("appliance.outbox.queries.CHAIN_MAX", 2)
    dead(outbox)
    ids = ["k1"]
    for _ in range(2):
        (row,) = redrive(outbox, ids[-1])
        outbox.set(row.new_client_message_id, "dead")
        ids.append(row.new_client_message_id)
    assert [row.client_message_id for row in outbox.service.inspect("k1").chain] == ids[1:]
