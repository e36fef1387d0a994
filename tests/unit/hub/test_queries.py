"""The replay query is the filter in plain Python, by index; paging never skips or repeats."""

import json
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.hub import queries, wire
from appliance.hub.subscription import Filter

CHANNELS = ["ch_a", "ch_b", "ch_c"]
TOPICS = ["topic_1", "topic_2", "topic_3", "topic_4"]


@dataclass(frozen=True)
class Scope:
    channel_id: str | None
    topic_id: str | None
    topic_id2: str | None


scopes = st.builds(
    Scope,
    st.none() | st.sampled_from(CHANNELS),
    st.none() | st.sampled_from(TOPICS),
    st.none() | st.sampled_from(TOPICS),
).filter(lambda scope: scope.channel_id or scope.topic_id)
some_ids = st.frozensets(st.sampled_from([f"other_{n}" for n in range(45)]), max_size=45)
filters = st.none() | st.builds(
    lambda channels, topics, more: Filter(channels, topics | more),
    st.frozensets(st.sampled_from(CHANNELS)),
    st.frozensets(st.sampled_from(TOPICS)),
    st.just(frozenset()) | some_ids,
)


def wanted(scope, filter_):
    """Hub spec §2.3, spelled out."""
    return filter_ is None or (
        scope.channel_id in filter_.channels
        or scope.topic_id in filter_.topics
        or scope.topic_id2 in filter_.topics
    )


def frames(data):
    """The JSON texts in a run of unmasked text frames."""
    events, at = [], 0
    while at < len(data):
        assert data[at] == 0x81
        size, at = data[at + 1], at + 2
        if size == 126:
            size, at = int.from_bytes(data[at : at + 2], "big"), at + 2
        events.append(json.loads(data[at : at + size]))
        at += size
    return events


def replayed(reader, after, until, filter_, limit, bytes_max=1 << 20):
    """Everything a session would send, piece by piece."""
    events = []
    while after < until:
        data, reached = queries.replay(reader, after, until, filter_, limit, bytes_max, True)
        assert reached > after
        events += frames(data)
        after = reached
    return events


@settings(max_examples=150, deadline=None)
@given(data=st.data(), logged=st.lists(scopes, max_size=60), filter_=filters)
def test_replay_is_exactly_the_filter_in_plain_python(new_bare_log, data, logged, filter_):
    log = new_bare_log()
    numbers = [log.event(s.channel_id, s.topic_id, s.topic_id2) for s in logged]
    after = data.draw(st.integers(0, len(logged) + 2))
    until = data.draw(st.integers(0, len(logged)))
    limit = data.draw(st.sampled_from([1, 2, 7, 1000]))
    bytes_max = data.draw(st.sampled_from([1, 300, 1 << 20]))
    expected = [
        number
        for number, scope in zip(numbers, logged, strict=True)
        if after < number <= until and wanted(scope, filter_)
    ]
    received = replayed(log.reader, after, until, filter_, limit, bytes_max)
    assert [event["event_id"] for event in received] == expected
    for event in received:
        scope = logged[event["event_id"] - 1]
        sent = {name: value for name, value in vars(scope).items() if value is not None}
        assert event["scope"] == sent
    log.connection.close()


@pytest.mark.parametrize(("channels", "topics"), [(1000, 1000), (0, 31), (61, 0), (500, 0)])
def test_the_widest_subscription_a_hello_may_carry_is_replayed(bare_log, channels, topics):
    numbers = [bare_log.event(f"ch_{n % 700}", f"topic_{n}") for n in range(1200)]
    filter_ = Filter(
        frozenset(f"ch_{n}" for n in range(channels)),
        frozenset(f"topic_{n}" for n in range(topics)),
    )
    expected = [
        number
        for n, number in enumerate(numbers)
        if wanted(Scope(f"ch_{n % 700}", f"topic_{n}", None), filter_)
    ]
    received = replayed(bare_log.reader, 0, numbers[-1], filter_, 1000)
    assert [event["event_id"] for event in received] == expected


def plan(connection, sql, parameters):
    rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters).fetchall()
    return [row[3] for row in rows]


SHAPES = {
    "everything": None,
    "nothing": Filter(),
    "a channel": Filter(frozenset({"ch_a"})),
    "a topic": Filter(topics=frozenset({"topic_1"})),
    "both": Filter(frozenset({"ch_a", "ch_b"}), frozenset({"topic_1", "topic_2"})),
    "as many as are sought one by one": Filter(frozenset(f"ch_{n}" for n in range(60))),
    "more than that": Filter(frozenset(f"ch_{n}" for n in range(61))),
    "far more": Filter(
        frozenset(f"ch_{n}" for n in range(1000)), frozenset(f"topic_{n}" for n in range(1000))
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("analyzed", [False, True])
def test_every_replay_uses_an_index_without_sorting(bare_log, shape, analyzed):
    for n in range(500):
        bare_log.event(CHANNELS[n % 3], TOPICS[n % 4])
    if analyzed:
        bare_log.connection.execute("ANALYZE")
    sql, parameters = queries.replay_statement(10, 400, SHAPES[shape], 1000)
    steps = plan(bare_log.connection, sql, parameters)
    touching = [step for step in steps if "events" in step]
    if shape != "nothing":  # there SQLite prints a scan of which it never takes a step
        assert all(step.startswith("SEARCH events USING") for step in touching), steps
    assert not any("ORDER BY" in step for step in steps), steps


@pytest.mark.parametrize(
    "query",
    [
        wire.EventsQuery(after=10),
        wire.EventsQuery(after=10, tail=5),
        wire.EventsQuery(after=10, channel_id="ch_a"),
        wire.EventsQuery(after=10, topic_id="topic_1"),
        wire.EventsQuery(after=10, name="message.created"),
        wire.EventsQuery(after=10, channel_id="ch_a", topic_id="topic_1", name="x", tail=3),
    ],
)
@pytest.mark.parametrize("only", [None, frozenset({"ch_a", "ch_b"})])
def test_the_events_api_searches_by_index(bare_log, query, only):
    """For a token that is limited to channels too."""
    seen = []

    class Watching:
        def page(self, sql, parameters, **_):
            seen.append(plan(bare_log.connection, sql, parameters))
            return [], False

    queries.list_events(Watching(), query, 400, only)
    touching = [step for step in seen[0] if "events" in step]
    assert touching
    assert all(step.startswith("SEARCH events USING") for step in touching), seen


@pytest.mark.parametrize("order", ["id", "rowid"])
@pytest.mark.parametrize("scope", ["channel_id", "topic_id"])
@pytest.mark.parametrize("direction", ["before_id", "after_id", "since"])
def test_paging_uses_an_index_without_sorting(bare_log, order, scope, direction):
    connection = bare_log.connection
    if order == "rowid":  # what adopting such a workspace makes
        connection.execute("CREATE INDEX x_messages_topic ON messages(topic_id)")
        connection.execute("CREATE INDEX x_messages_channel ON messages(channel_id)")
    seen = []

    class Watching:
        def row(self, sql, parameters=()):
            return (1,)

        def page(self, sql, parameters, **_):
            seen.append(plan(connection, sql, parameters))
            return [], False

    query = wire.MessagesQuery(**{scope: "x", direction: "2026-01-01"})
    queries.page_messages(Watching(), query, order)
    assert seen[0][0].startswith("SEARCH messages USING INDEX"), seen
    # And of each row its principal by the key, and the first message by its time.
    others = [step for step in seen[0][1:] if "SUBQUERY" not in step and "RIGHT PART" not in step]
    first = [step for step in others if "idx_messages_created (created_at>?)" in step]
    assert len(first) == (direction == "since")
    assert [step for step in others if step not in first] == [
        "SEARCH x_message_principals USING PRIMARY KEY (message_id=?)"
    ]
    assert order == "id" or "rowid" in seen[0][0], seen


# -- paging ----------------------------------------------------------------------------


class Messages:
    """Messages of two topics in one table; ids rise, or are made up by somebody else."""

    def __init__(self, log, order):
        self.log, self.order, self.made = log, order, []
        now = "2026-01-01T00:00:00.000Z"
        execute = log.connection.execute
        execute("INSERT INTO channels VALUES ('ch_a', 'a', NULL, ?)", (now,))
        for topic in ("topic_1", "topic_2"):
            execute("INSERT INTO topics VALUES (?, 'ch_a', ?, ?, ?)", (topic, topic, now, now))

    def add(self, topic_id, number):
        """In "rowid" order `number` is the id, random as a UUID is."""
        made = f"{number:032x}" if self.order == "rowid" else self.log.tx.new_id("msg_")
        self.log.connection.execute(
            "INSERT INTO messages (id, topic_id, channel_id, sender, content_raw, created_at)"
            " VALUES (?, ?, 'ch_a', 's', 'c', 't')",
            (made, topic_id),
        )
        self.made.append((made, topic_id))

    def of(self, scope):
        return [id_ for id_, topic in self.made if scope == "ch_a" or topic == scope]

    def page(self, scope, limit, **anchor):
        column = "channel_id" if scope == "ch_a" else "topic_id"
        query = wire.MessagesQuery(limit=limit, **{column: scope}, **anchor)
        return queries.page_messages(self.log.reader, query, self.order)


numbers = st.lists(st.integers(0, 2**128 - 1), unique=True, min_size=1, max_size=60)


@pytest.mark.parametrize("order", ["id", "rowid"])
@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    numbers=numbers,
    scope=st.sampled_from(["ch_a", "topic_1"]),
    limit=st.integers(1, 9),
)
def test_pages_never_skip_or_repeat_during_writes(new_bare_log, order, data, numbers, scope, limit):
    log = new_bare_log()
    messages = Messages(log, order)
    coming = [(data.draw(st.sampled_from(["topic_1", "topic_2"])), n) for n in numbers]
    already = data.draw(st.integers(0, len(coming)))
    for topic_id, number in coming[:already]:
        messages.add(topic_id, number)
    coming = coming[already:]
    old = messages.of(scope)

    def somebody_writes():
        for _ in range(data.draw(st.integers(0, min(3, len(coming))))):
            messages.add(*coming.pop(0))

    page = messages.page(scope, limit)
    ids = [message.id for message in page.messages]
    while page.has_more:
        somebody_writes()
        page = messages.page(scope, limit, before_id=page.cursor)
        ids += [message.id for message in page.messages]
    assert ids == old[::-1], "older pages: all that was there, once, newest first"

    if not old:
        log.connection.close()
        return
    ids, cursor = [old[0]], old[0]
    while True:
        somebody_writes()
        page = messages.page(scope, limit, after_id=cursor)
        ids += [message.id for message in page.messages]
        if not page.messages and not coming:
            break
        cursor = page.cursor or cursor
        if not page.messages:
            messages.add(*coming.pop(0))
    assert ids == messages.of(scope), "newer pages: all there is in the end, once, in order"
    log.connection.close()
