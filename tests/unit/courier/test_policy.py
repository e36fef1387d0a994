"""Patterns of streams: matching and precedence."""

import pytest

from appliance.courier.policy import StreamPolicy, matches
from appliance.kernel.retry import RetrySettings


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


def test_delay_grows_until_no_attempts_are_left():
    policy = StreamPolicy(deliveries_max=3)
    assert [policy.retry_delay_ms(attempts) for attempts in (1, 2, 3, 4)] == [1e3, 2e3, None, None]
    endless = StreamPolicy(retry=RetrySettings(1.0, 60.0, jitter=0.0))
    assert (StreamPolicy().retry_delay_ms(9), endless.retry_delay_ms(9)) == (60_000, 60_000)
    assert (StreamPolicy().retry_delay_ms(24), StreamPolicy().retry_delay_ms(25)) == (60_000, None)
