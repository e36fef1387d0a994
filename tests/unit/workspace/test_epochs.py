"""Epochs: how far two event ids are apart when restores lie between them."""

import pytest

from appliance.shared.segment_chain import JUMP
from appliance.workspace.epochs import ids_between

FIRSTS = ((1, "first"), (10 + JUMP + 1, "second"), (20 + 2 * JUMP + 1, "third"))


@pytest.mark.parametrize(
    ("after", "until", "firsts", "expected"),
    [
        (3, 10, (), 7),
        (10, 3, (), 0),
        (3, 10, FIRSTS, 7),
        (10, 10 + JUMP, FIRSTS, 0),  # restored, and nothing was written yet
        (8, 10 + JUMP + 5, FIRSTS, 7),
        (10 + JUMP, 10 + JUMP + 5, FIRSTS, 5),
        (8, 20 + 2 * JUMP + 1, FIRSTS, 13),
    ],
)
def test_jumps_of_restores_are_left_out(after, until, firsts, expected):
    assert ids_between(after, until, firsts) == expected
