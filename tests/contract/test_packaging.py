"""The ways to install in the README: each is there, and short."""

import pytest

from tests.support.installs import blocks

WAYS = {"docker", "compose", "quadlet", "agent", "agent-once", "server", "service"}
LINES_MAX = 5


def test_readme_has_every_way_that_the_tests_try() -> None:
    assert set(blocks()) == WAYS


@pytest.mark.parametrize("way", sorted(WAYS))
def test_way_is_at_most_five_lines(way: str) -> None:
    assert 1 <= len(blocks()[way].splitlines()) <= LINES_MAX
