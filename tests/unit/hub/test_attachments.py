"""Attachments: the same one only once (ADR-0007), nothing dangerous, nothing too big, paging."""

from operator import attrgetter

import gevent
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.hub import attachments, wire
from appliance.kernel.errors import Invalid, KeyReused, PayloadTooLarge
from tests.support.pages import pages_of

BODY = msgspec.json.Decoder(wire.AttachmentAdded)
LINK = {"url": "https://example.com/a", "title": "Example"}


def add(env, topic, value, kind="url", key=None, dedupe=None, source=None, once=None):
    command = wire.AddAttachment(kind, value, key, dedupe, source)
    reply = env.hub.add_attachment(topic, command, env.alice, once)
    return reply.status, BODY.decode(reply.body)


def logged_attachments(env):
    return env.rows(
        "SELECT event_id, scope_channel_id, scope_topic_id, entity_type, entity_id, data_json"
        " FROM events WHERE name = 'topic.attachment_added'"
    )


def test_equal_attachment_returns_the_first_without_an_event(env, ids):
    topic = ids[1]
    _, first = add(env, topic, LINK)
    before = env.everything()
    for value in (LINK, dict(reversed(LINK.items()))):
        status, repeated = add(env, topic, value)
        assert status == 200
        assert repeated == wire.AttachmentAdded(first.attachment, None, True)
    assert env.everything() == before


def test_attachments_differ_by_topic_kind_key_and_dedupe_key(env, ids):
    channel, topic, _ = ids
    other = env.topic(channel, "second")
    made = [
        add(env, topic, LINK),
        add(env, other, LINK),
        add(env, topic, LINK, kind="link"),
        add(env, topic, LINK, key="k"),
        add(env, topic, LINK, dedupe="mine"),
    ]
    assert [status for status, _ in made] == [201] * 5
    assert add(env, topic, {"url": "https://example.com/b"}, dedupe="mine")[0] == 200
    assert add(env, topic, LINK, key="")[0] == 200, "no key and an empty one are one"
    assert len(logged_attachments(env)) == 5


def test_concurrent_equal_attachments_are_stored_once(env, ids):
    adding = [gevent.spawn(add, env, ids[1], LINK) for _ in range(20)]
    gevent.joinall(adding, raise_error=True)
    assert sorted(each.value[0] for each in adding) == [200] * 19 + [201]
    assert len({each.value[1].attachment.id for each in adding}) == 1
    assert len(logged_attachments(env)) == 1


def test_an_idempotency_key_repeats_the_first_answer(env, ids):
    first = add(env, ids[1], LINK, once="k")
    assert add(env, ids[1], LINK, once="k") == first
    with pytest.raises(KeyReused):
        add(env, ids[1], {"url": "https://example.com/b"}, once="k")


# -- what may be attached ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)", "JaVaScRiPt:alert(1)", "java\tscript:alert(1)", " javascript:x",
        "\x01javascript:x", "data:text/html,<script>", "vbscript:x", "ftp://example.com/x", "//x",
        "/etc/passwd", "example.com", "http:example.com", "http://", "https:///x", "http://a b",
        "http://a\nb", "http://[", "http://a:port/", "http://a\\@b", "blob:https://a/b", "",
        "https://a\u0000", 7, ["https://a"], {"x": 1},
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", ["url", "href", "URL", "deep"])
def test_an_address_that_may_not_be_followed_is_refused(env, ids, address, where):
    value = {"list": [{"HREF ": address}]} if where == "deep" else {where: address}
    before = env.everything()
    with pytest.raises(wire.BadUrl):
        add(env, ids[1], value, kind="note")
    assert env.everything() == before


@pytest.mark.parametrize(
    "address",
    ["http://a", "HTTPS://example.com:8443/x?y=1#z", "file:///tmp/a", "file://host/x",
     "http://[::1]:80/", "https://example.com/ü"],
)  # fmt: skip
def test_an_address_that_may_be_followed_is_kept(env, ids, address):
    assert add(env, ids[1], {"url": address})[1].attachment.value_json == {"url": address}


@pytest.mark.parametrize("value", [{}, {"href": "https://a"}, {"url": None}])
def test_kind_url_has_a_url(env, ids, value):
    with pytest.raises(wire.BadUrl):
        add(env, ids[1], value)


def test_16_kilobytes_fit_and_a_byte_more_does_not(env, ids):
    frame = len(b'{"x":""}')
    for text, character in (("x", 1), ("ü", 2)):
        fits = text * ((wire.VALUE_BYTES_MAX - frame) // character)
        assert add(env, ids[1], {"x": fits}, kind="note")[0] == 201
        with pytest.raises(PayloadTooLarge) as refused:
            add(env, ids[1], {"x": fits + text}, kind="note")
        assert refused.value.code == "PAYLOAD_TOO_LARGE"
        assert refused.value.details["limit"] == 16_384


def test_too_deep_a_value_and_nul_are_refused(env, ids):
    deep = {}
    for _ in range(40):
        deep = {"x": [deep]}
    with pytest.raises(Invalid, match="nested deeper"):
        add(env, ids[1], deep, kind="note")
    for value, kind in (({"x": "a\0"}, "note"), ({"a\0": 1}, "note"), ({}, "a\0")):
        with pytest.raises(Invalid, match="U\\+0000"):
            add(env, ids[1], value, kind=kind)


# -- when two are the same -----------------------------------------------------------------------


def same(left, right):
    """Equal as JSON: order of keys and spelling of numbers aside, types kept apart."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left == right


numbers = st.one_of(
    st.integers(-3, 3), st.integers(-(2**53), 2**53), st.sampled_from([0.0, -0.0, 1.0, 2.0, 0.5]),
    st.floats(allow_nan=False, allow_infinity=False),
)  # fmt: skip
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.sampled_from(["", "a", "ä", "1", "\ud7ff😀"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)
objects = st.dictionaries(st.sampled_from("abcü"), values, max_size=4)


@given(objects, objects)
def test_keys_are_equal_exactly_when_values_are(left, right):
    """Numbers as a double holds them exactly: there it is the equality of RFC 8785."""
    keys = attachments.dedupe_key(left), attachments.dedupe_key(right)
    assert (keys[0] == keys[1]) == same(left, right)


@given(objects, st.randoms())
def test_order_of_keys_at_any_depth_does_not_matter(value, rng):
    def shuffled(inner):
        if isinstance(inner, list):
            return [shuffled(each) for each in inner]
        if not isinstance(inner, dict):
            return inner
        items = [(name, shuffled(each)) for name, each in inner.items()]
        rng.shuffle(items)
        return dict(items)

    assert attachments.dedupe_key(shuffled(value)) == attachments.dedupe_key(value)


# -- listing -------------------------------------------------------------------------------------


def test_pages_give_every_attachment_once_newest_first(env, ids):
    topic, made = ids[1], []
    for number in range(23):
        if number % 5 == 0:
            env.clock.pass_seconds(1)
        kind = "even" if number % 2 == 0 else "odd"
        made.append((kind, add(env, topic, {"n": number}, kind=kind)[1].attachment.id))
    for kind in (None, "even", "odd"):
        wanted = [id_ for each, id_ in reversed(made) if kind in (None, each)]

        def page_before(cursor, kind=kind):
            query = wire.AttachmentsQuery(kind=kind, limit=5, before_id=cursor)
            return env.hub.list_attachments(topic, query, env.alice)

        pages = pages_of(page_before, cursor_of=attrgetter("cursor"))
        assert [each.id for page in pages for each in page.attachments] == wanted
