"""Patterns of streams: matching and precedence."""

import pytest

from appliance.courier.policy import StreamPolicy, matches


@pytest.mark.parametrize(
    ("glob", "name", "expected"),
    [
        ("agents/*", "agents/Jen/inbox", True),
        ("agents/*/inbox", "agents/Jen/inbox", True),
        ("agents/*/inbox", "agents/Jen/outbox", False),
        ("*", "anything/at/all", True),
        ("agents/J?n", "agents/Jen", False),
        ("a[b]", "ab", False),
        ("a[b]*", "a[b]c", True),
        ("agents/Jen", "agents/Jen", True),
        ("agents/Jen", "agents/Jenny", False),
    ],
)
def test_only_the_star_is_a_wildcard(glob, name, expected):
    assert matches(glob, name) is expected


@pytest.mark.parametrize(
    ("attempts", "deliveries_max", "ms"),
    [(1, 3, 1_000), (2, 3, 2_000), (3, 3, None), (4, 3, None), (9, 0, 60_000)],
)
def test_delay_grows_until_no_attempts_are_left(attempts, deliveries_max, ms):
    policy = StreamPolicy(deliveries_max=deliveries_max, backoff_seconds=1.0)
    assert policy.retry_delay_ms(attempts) == ms
