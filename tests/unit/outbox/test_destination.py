"""Destinations and mail addresses: valid ones, invalid ones, and their stored form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.kernel.errors import ApplianceError
from appliance.outbox import destination
from appliance.outbox.destination import BadDestination

KEY = "29acbae141bccaf0" * 4


@pytest.mark.parametrize(
    ("to", "kind", "ref"),
    [
        ("#alerts", "topic", "alerts"),
        ("topic:alerts", "topic", "alerts"),
        (KEY, "dm", KEY),
        (f"dm:{KEY.upper()}", "dm", KEY),
        ("queue:q1", "queue", "q1"),
        ("#größe", "topic", "größe"),
    ],
)
def test_destination_is_parsed(to, kind, ref):
    assert destination.parse(to) == (kind, ref)
    assert destination.parse(destination.to_text(kind, ref)) == (kind, ref)


@pytest.mark.parametrize(
    "to",
    ["", "#", "alice", KEY[:16], KEY + "0", "dm:" + KEY[:63], "#a b", "mail:x", "#" + "x" * 201],
)
def test_undeliverable_destination_is_refused(to):
    """Among it the beginning of a key, which an earlier implementation took and never sent."""
    with pytest.raises(destination.BadDestination):
        destination.parse(to)


@given(st.text(max_size=300))
def test_any_text_is_a_destination_or_refused(to):
    try:
        kind, ref = destination.parse(to)
    except ApplianceError:
        return
    assert destination.parse(destination.to_text(kind, ref)) == (kind, ref)


def test_addresses_are_stored_once_with_domains_in_lower_case():
    assert destination.mail("mailto:Ops@Example.COM, b@x.org,Ops@example.com") == (
        "mailto:Ops@example.com,b@x.org"
    )
    assert destination.mail("ops@example.com") == "mailto:ops@example.com"
    assert destination.to_text("queue", "mailto:a@x.org") == "mailto:a@x.org"


@pytest.mark.parametrize(
    "to",
    [
        "mailto:", "mailto:ops", "mailto:a@b@c", "mailto:a@x.org,", "mailto:a b@x.org",
        "mailto:a@x.org\r\nRCPT TO:<eve@x.org>", "mailto:<a@x.org>", 'mailto:"a"@x.org',
        "mailto:victim%other.org@x.org", "mailto:other.org!victim@x.org", "mailto:ä@x.org",
        "mailto:a@[10.0.0.1]", "mailto:a@-x.org", "mailto:a@x..org", "mailto:-a@x.org",
        "mailto:a@x.org?bcc=eve@x.org", f"mailto:{'a' * 65}@x.org",
    ],
)  # fmt: skip
def test_invalid_address_is_refused(to):
    with pytest.raises(BadDestination):
        destination.mail(to)
