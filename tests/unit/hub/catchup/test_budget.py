"""For any catch-up and any budget: never longer than asked, and the most urgent first."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from appliance.hub.catchup import budget, wire
from appliance.hub.catchup.wire import CatchUpItem, CatchUpPart

COMMANDS = {
    "questions": "agentlip ask list --state waiting",
    "claims": "agentlip bus claims",
    "entries": "agentlip inbox mine",
    "pins": "agentlip msg pins",
    "topics": f"agentlip listen --since {10**18} --until-event {2 * 10**18}",
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300)
BUDGETS = st.integers(wire.TOKENS_MIN, wire.TOKENS_MAX) | st.integers(wire.TOKENS_MIN, 400)


@st.composite
def catch_ups(draw):
    name, tokens = (
        draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=200)),
        draw(BUDGETS),
    )
    limit = budget.line_bytes(tokens)
    parts = []
    for part, command in COMMANDS.items():
        pool = draw(st.lists(TEXTS, max_size=3))
        lines = [budget.excerpt(text, limit) for text in pool * draw(st.integers(0, 60))]
        items = [CatchUpItem(str(number), line) for number, line in enumerate(lines)]
        more, is_bound = draw(st.sampled_from([(0, False), (0, True), (1, True)]))
        if part == "entries":
            command += budget.argument(name)
        parts.append(CatchUpPart(part, items, more, command, is_bound))
    return name, parts, tokens


@settings(max_examples=300, deadline=None)
@given(catch_ups())
def test_catch_up_is_within_its_budget_and_urgent_first(given_parts):
    name, parts, tokens = given_parts
    made = budget.fit(name, 10**18, parts, tokens)
    assert made.tokens == budget.tokens_of(made.text, made.next) <= tokens
    assert len(made.text.encode()) <= tokens * wire.BYTES_PER_TOKEN
    left = tokens * wire.BYTES_PER_TOKEN - budget.cost(made.text, made.next)
    at, shortest = 0, None
    for before, after in zip(parts, made.parts, strict=True):
        kept = len(after.items)
        assert after.items == before.items[:kept], "only the end of a part is left out"
        assert after.more == before.more + len(before.items) - kept
        assert after.is_bound == before.is_bound
        if after.more or after.is_bound:
            assert after.command in made.text, "the command that shows the rest"
        if kept < len(before.items):
            size = budget.cost(f"- {before.items[kept].line}\n", 0) - budget.cost("", 0)
            shortest = size if shortest is None else min(size, shortest)
        at = made.text.find(f"## {before.part.title()}", at) if kept else at
        assert at >= 0, "parts are in their order"
    headings = 120 * len(parts)  # shorter once nothing is left out
    assert shortest is None or left < shortest + headings, "the budget is used"


def items(count, size=90):
    return [CatchUpItem(str(number), "x" * size) for number in range(count)]


def test_every_part_has_its_share_and_urgent_parts_get_the_rest():
    parts = [CatchUpPart(part, items(99), 0, command) for part, command in COMMANDS.items()]
    kept = [len(part.items) for part in budget.fit("ada", 1, parts, 1000).parts]
    assert all(kept)
    assert kept[0] == max(kept)
    alone = [*parts[:4], CatchUpPart("topics", [], 0, "")]
    more = [len(part.items) for part in budget.fit("ada", 1, alone, 1000).parts]
    assert more[0] > kept[0]
    assert more[1:4] >= kept[1:4]


def test_smallest_budget_holds_all_headings_with_the_longest_name():
    name = "'\"" * 100
    parts = [
        CatchUpPart(part, items(9), 1, command + budget.argument(name), is_bound=True)
        for part, command in COMMANDS.items()
    ]
    made = budget.fit(name, 2**63 - 1, parts, wire.TOKENS_MIN)
    assert made.tokens <= wire.TOKENS_MIN
    assert all(command in made.text for command in COMMANDS.values())


def test_task_name_without_room_is_left_out_of_its_command():
    name = "feature-" + "x" * 56
    parts = [
        CatchUpPart(part, items(9), 1, command + budget.argument(name))
        for part, command in COMMANDS.items()
    ]
    small, large = (budget.fit(name, 1, parts, tokens).text for tokens in (100, 2000))
    assert f"--as {name}" in large
    assert name not in small


@pytest.mark.parametrize(
    ("text", "bytes_max", "short"),
    [
        ("a\nb\t c", 80, "a b c"),
        ("x" * 90, 80, "x" * 77 + "…"),
        ("é" * 60, 80, "é" * 38 + "…"),
        ("\x1b[31mred", 80, "\N{REPLACEMENT CHARACTER}[31mred"),
        (" " * 500 + "late", 80, "…"),
    ],
)
def test_excerpts_are_one_printable_line(text, bytes_max, short):
    assert budget.excerpt(text, bytes_max) == short
    assert len(budget.excerpt(text, bytes_max).encode()) <= bytes_max
