"""Full-text search in messages."""

from appliance.busfile import retention, search
from appliance.kernel.clock import DAY_MS
from tests.support.bus import NOW, BusFixture
from tests.support.database_files import execute


def numbers(bus, text, **options):
    return [message.seq for message in search.search(bus.connection, text, **options)]


def test_all_words_are_in_the_message_newest_first(bus, monkeypatch):
    monkeypatch.setattr(search, "INDEX_BATCH_MAX", 2)
    for text in ("red apple", "green apple", "red tomato", 'apple "red"', "apples"):
        bus.send(payload={"text": text}, correlation_id="fruit-7")
    assert numbers(bus, "apple red") == [4, 1]
    assert numbers(bus, "apple", limit=1) == [4]
    assert numbers(bus, "fruit-7 tomato") == [3]
    assert numbers(bus, 'red" OR "green') == []
    bus.send(payload="red apple")
    assert numbers(bus, "RED apple") == [6, 4, 1]


def test_pruned_messages_are_not_results_also_after_a_vacuum(bus):
    for _ in range(100):
        bus.send(payload="old apple " + "." * 4000)
    assert len(numbers(bus, "apple")) == 50
    bus.run(retention.prune, NOW + DAY_MS, 0)
    assert numbers(bus, "apple") == []
    bus.send(payload="new apple")
    assert retention.vacuum(bus.connection)
    assert numbers(bus, "apple") == [101]


def test_program_that_follows_the_specification_writes_beside_the_index(bus, tmp_path):
    assert numbers(bus, "apple") == []
    insert = "INSERT INTO messages (id, ts_ms, from_agent, type) VALUES ('i', 1, 'pear', 't')"
    execute(BusFixture(tmp_path).paths.database, insert)
    assert numbers(bus, "pear") == [1]
