"""What closes a socket of the courier."""

import pytest
from websockets.exceptions import ConnectionClosed

from tests.support.courier import (
    receive_frame,
    subscribed,
)


def test_wrong_token_is_closed_with_4401(hub):
    with pytest.raises(ConnectionClosed) as closed, subscribed(hub, "x", token="wrong") as consumer:
        receive_frame(consumer)
    assert closed.value.rcvd.code == 4401


def test_frame_above_the_limit_closes_with_1009(hub, stream):
    with subscribed(hub, stream) as consumer:
        consumer.send('{"ack":"' + "x" * 300_000 + '"}')
        with pytest.raises(ConnectionClosed) as closed:
            receive_frame(consumer)
    assert closed.value.rcvd.code == 1009
