"""What callers without a token may read in a second."""

import pytest

from appliance.hub.reading_turns import ANONYMOUS_BYTES_BURST, ANONYMOUS_BYTES_PER_SECOND, Turns
from appliance.kernel.auth import ANONYMOUS, Principal
from tests.support.clock import FakeClock

KNOWN = [Principal(name, name, frozenset()) for name in ("one", "two")]
PIECE = 1024 * 1024


def test_only_callers_without_token_have_limited_bytes():
    clock = FakeClock()
    turns = Turns(clock, PIECE, clock.pass_seconds)

    def seconds(who, pieces):
        began = clock.seconds
        for _ in range(pieces):
            with turns.turn(who) as charge:
                charge(PIECE)
        return clock.seconds - began

    pieces = (ANONYMOUS_BYTES_BURST + 4 * ANONYMOUS_BYTES_PER_SECOND) // PIECE
    assert seconds(KNOWN[0], pieces) == 0
    assert seconds(ANONYMOUS, pieces) == pytest.approx(4)
