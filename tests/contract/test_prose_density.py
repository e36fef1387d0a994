"""No package and no section of the docs gets more "of" and pronouns than it has."""

import ast

from tests.contract.prose_density import (
    GOALS,
    Density,
    densities,
    density,
    exceeded,
    limits,
    lowered,
    names,
    words_of,
)

HUB = ("docstrings", "appliance/hub")


def test_density_stays_within_limits():
    assert exceeded(densities(), limits()) == []


def test_denser_group_is_reported():
    rows = {HUB: Density(21.0, 35.0)}
    assert exceeded({HUB: Density(21.0, 35.0)}, rows) == []
    assert len(exceeded({HUB: Density(21.1, 35.0)}, rows)) == 1
    assert len(exceeded({HUB: Density(21.0, 35.1)}, rows)) == 1


def test_group_without_row_has_goal_as_limit():
    goal = GOALS["docs"]
    assert exceeded({("docs", "new"): goal}, {}) == []
    assert len(exceeded({("docs", "new"): Density(goal.of + 0.1, 0.0)}, {})) == 1


def test_lowering_never_raises_a_limit():
    rows = {HUB: Density(30.0, 40.0)}
    assert lowered({HUB: Density(25.0, 45.0)}, rows) == {HUB: Density(25.0, 40.0)}
    assert lowered({HUB: Density(10.0, 10.0)}, rows) == {}


def test_code_is_not_counted():
    text = "The age of it.\n\n```sh\nof of of\n```\n`of` <of> https://example.org/of"
    words = words_of(text)
    assert words == ["the", "age", "of", "it"]
    assert density(words) == Density(250.0, 250.0)


def test_names_count_as_their_words():
    tree = ast.parse('log = {"age_of_it": 1, "backup-age": "3 of them", "port": 2}')
    assert names(tree) == "age of it\nbackup age"


def test_every_kind_is_counted_per_group():
    groups = densities().keys()
    assert {kind for kind, _ in groups} == set(GOALS)
    assert {("literals", "appliance/hub"), ("comments", "appliance/hub")} <= groups
