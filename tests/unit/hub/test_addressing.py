"""Names behind @ in a text."""

import pytest

from appliance.hub.addressing import MENTIONS_MAX, mentions

SPANS = " ".join("`" * length for length in range(360, 0, -1))  # nothing closes them


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("hello", ()),
        ("@ada look", ("ada",)),
        ("look, @ada.", ("ada",)),
        ("@ada @bob @ada", ("ada", "bob")),
        ("(@ada)", ("ada",)),
        ("@agents.build-7: done", ("agents.build-7",)),
        ("mail ada@example.com", ()),
        ("https://example.com/@ada", ()),
        ("@@ada", ()),
        ("@ ada", ()),
        ("`@ada`", ()),
        ("```\n@ada\n```\n@bob", ("bob",)),
        ("```\n@ada", ()),
        ("@ada `x` @bob", ("ada", "bob")),
        ("@größe @北京", ("größe", "北京")),
        ("@-ada @.ada", ()),
        ("@" + "a" * 200, ("a" * 200,)),
        ("@" + "a" * 201, ()),
        ("~~~\n@ada\n~~~\n@bob", ("bob",)),
        ("```@ada``` @bob", ("bob",)),
        ("``@ada ` x`` @bob", ("bob",)),
        ("a ` b\n\n@ada ` c", ("ada",)),
        ("run ```\n@ada\n```", ()),
        ("https://example.com/?to=@ada @bob", ("bob",)),
        ("import @ada/pkg", ()),
        ("mail ada+@example.com", ()),
        ("@ada/@bob", ("ada",)),
    ],
)
def test_names_are_found_outside_code_and_addresses(text, names):
    assert mentions(text) == names


def test_one_text_mentions_a_limited_number_of_names():
    assert len(mentions(" ".join(f"@n{number}" for number in range(500)))) == MENTIONS_MAX


@pytest.mark.parametrize(
    "piece", ["@", "`", "```", "@a`", "@a ", "a", "~~~\n", "\n ", "://", SPANS]
)
def test_hostile_text_of_the_largest_size_is_read_in_linear_steps(piece):
    assert len(mentions(piece * (65_536 // len(piece)))) <= 1
