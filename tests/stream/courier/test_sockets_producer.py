"""Producers on a served appliance: confirmations, errors, full streams."""

import json

import pytest

from tests.support.courier import (
    envelope,
    opened,
    receive_frame,
    send,
    stats,
    subscribed,
)


def test_publishing_is_confirmed_cumulatively(hub, stream):
    with opened(hub, "/v1/publish") as publisher:
        send(publisher, seq=1, to=stream, envelope=envelope("a"))
        assert receive_frame(publisher) == {"accepted": 1}
        frames = [{"seq": n, "to": stream, "envelope": envelope(f"e{n}")} for n in range(2, 8)]
        publisher.send(json.dumps(frames))
        assert receive_frame(publisher) == {"accepted": 7}
    assert stats(hub, stream)["depth"] == 7


def test_blocking_stream_waits_for_capacity(hub):
    stream = "patient/a"
    with opened(hub, "/v1/publish") as publisher, subscribed(hub, stream) as other:
        send(publisher, seq=1, to=stream, envelope=envelope("a"))
        assert receive_frame(publisher) == {"accepted": 1}
        send(publisher, seq=2, to=stream, envelope=envelope("b"))
        with pytest.raises(TimeoutError):
            receive_frame(publisher, 0.3)
        send(other, credit=1)
        send(other, ack=receive_frame(other)["deliver"]["id"])
        assert receive_frame(publisher) == {"accepted": 2}
