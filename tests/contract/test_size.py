"""`ops/size`: what counts as a line of code, and which limits there are."""

from collections import Counter

import pytest

from ops.size import HEADROOM, PRODUCT_MAX, ROWS, above_limits, count


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", 0),
        ('"""A module."""\n\nimport os\n\nX = 1  # with a comment\n', 1),
        ("from a import (\n    b,\n    c,\n)\n# a comment\nX = (\n    1,\n)\n", 3),
        ('def f():\n    """Words\n    and more."""\n    return """\n  text\n"""\n', 4),
        ("class A:\n    'Words.'\n\n    x = 1\n", 2),
        ("async def f():\n    import os\n\n    # nothing\n    return os\n", 2),
    ],
)
def test_line_counts_if_it_has_code(text, lines):
    assert count(text) == lines


@pytest.mark.parametrize(
    ("counted", "above"),
    [
        ({"hub": int(ROWS["hub"] * HEADROOM)}, []),
        ({"hub": int(ROWS["hub"] * HEADROOM) + 1}, ["hub"]),
        ({"a new folder": PRODUCT_MAX, "tests": 1}, []),
        ({"a new folder": PRODUCT_MAX + 1}, ["product"]),
    ],
)
def test_package_may_grow_within_the_limit_of_the_product(counted, above):
    assert above_limits(Counter(counted)) == above
