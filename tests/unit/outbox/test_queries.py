"""Single sends, their chains of redrives, and the state of the outbox."""

from functools import partial
from itertools import pairwise

import msgspec
import pytest

from appliance.kernel.reader import PAGE_BYTES_MAX
from appliance.outbox import wire
from tests.support.outbox import dead, redrive
from tests.support.pages import pages_of


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


LONG = 1200  # redrives of one send


@pytest.fixture
def long_chain(outbox):
    """The keys of a send that was redriven `LONG` times; each row has the maximum size."""
    keys = [f"k{number:04}" + "x" * 250 for number in range(LONG)]
    for start in range(0, LONG, 400):
        for key in keys[start : start + 400]:
            outbox.send(key=key, mesh="ops", to="#" + "t" * 200, reply_to_id="r" * 255)
    ids = dict(outbox.rows("SELECT client_message_id, id FROM outbox"))

    def link(tx):
        tx.execute("UPDATE outbox SET last_error = ?", ("\x01" * 200,))
        for before, after in pairwise(keys):
            tx.execute(
                "UPDATE outbox SET status = 'aborted', aborted_at = 1, superseded_by = ?"
                " WHERE id = ?",
                (ids[after], ids[before]),
            )

    outbox.store.write(link)
    return keys


@pytest.mark.parametrize("position", [0, LONG // 2, LONG - 1])
def test_a_chain_is_limited_in_bytes_and_continues_on_the_next_page(outbox, long_chain, position):
    pages = pages_of(partial(outbox.service.inspect, long_chain[position], limit=10_000))
    assert {page.send.client_message_id for page in pages} == {long_chain[position]}
    assert [row.client_message_id for page in pages for row in page.chain] == long_chain
    assert pages[-1].next is None
    assert len(pages) > 2


def test_a_chain_has_a_limit_of_rows(outbox, long_chain):
    page = outbox.service.inspect(long_chain[3], limit=2)
    assert [row.client_message_id for row in page.chain] == long_chain[:2]
    page = outbox.service.inspect(long_chain[3], page.next, limit=2)
    assert [row.client_message_id for row in page.chain] == long_chain[2:4]
    assert page.has_more


def test_cycle_of_rows_in_a_damaged_file_ends_the_chain(outbox):
    dead(outbox, "k1")
    dead(outbox, "k2")
    for row, other in (("k1", "k2"), ("k2", "k1")):
        outbox.set(row, "aborted", superseded_by=outbox.service.inspect(other).send.id)
    page = outbox.service.inspect("k1")
    assert [row.client_message_id for row in page.chain] == ["k1", "k2"]
    assert not page.has_more


def test_a_list_of_long_rows_is_limited_in_bytes(outbox, long_chain):
    page = outbox.service.list_sends(wire.ListQuery(limit=10_000))
    assert len(msgspec.json.encode(page)) <= PAGE_BYTES_MAX
    assert page.next is not None
    assert long_chain


def test_state_counts_open_sends(outbox):
    for key in ("a", "b"):
        outbox.send(key=key)
    dead(outbox, "c")
    outbox.clock.pass_seconds(90)
    state = outbox.service.state()
    assert state.depth == {"pending": 2, "dead": 1, "aborted": 0, "inflight": 0}
    assert (state.level, state.oldest_pending_seconds) == ("normal", 90.0)
    assert state.max_age_hours == {"default": 144}
