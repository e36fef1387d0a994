"""Which days are stale, decided from what silver and gold remember."""

from datetime import date, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.jobs.activity import plan
from spark.tables import Dataset, Version

DAY = date(2026, 2, 1)
DAYS = st.sets(st.integers(0, 400).map(lambda n: (DAY + timedelta(days=n)).isoformat()))


def days(*numbers):
    return [f"2026-02-{number:02d}" for number in numbers]


@pytest.mark.parametrize(
    ("touched", "counted", "stale"),
    [
        ({}, {}, []),
        ({3: 1}, {}, [3]),
        ({3: 1}, {3: 1}, []),
        ({3: 2}, {3: 1}, [3]),
        ({2: 1, 3: 2, 4: 1, 5: 1}, {2: 1, 3: 1, 4: 1, 5: 1}, [2, 3, 4]),
        ({2: 2, 3: 2, 4: 1, 5: 1}, {2: 2, 3: 2, 4: 2, 5: 1}, []),
        ({3: 2}, {1: 0, 2: 0, 3: 0, 4: 0, 5: 0}, [2, 3, 4]),  # silver listed no older days
        ({3: 1}, {3: 1, 9: 1}, [9]),  # silver was made again, without this day
        ({3: 1, 9: 4}, {3: 1}, [9]),  # only other days were requested
    ],
)
def test_day_is_stale_if_it_or_a_day_next_to_it_changed(touched, counted, stale):
    def named(numbers):
        return {days(number)[0]: version for number, version in numbers.items()}

    memory = {"touched": named(touched)}
    assert sorted(plan.stale_days(memory, named(counted))) == days(*stale)
    newest = plan.newest_changes(memory, named(counted))
    assert plan.stale_days(memory, newest) == set()


@given(DAYS)
def test_ranges_contain_the_days_and_no_others_unless_there_are_too_many(some):
    ranges = plan.ranges(some)
    assert all(plan.contains(ranges, day) for day in some)
    assert len(ranges) <= plan.RANGES_MAX
    assert all(before[1] < after[0] for before, after in pairwise(ranges))
    covered = sum((last - first).days + 1 for first, last in ranges)
    runs = sum(
        (date.fromisoformat(day) - timedelta(days=1)).isoformat() not in some for day in some
    )
    if runs <= plan.RANGES_MAX:
        assert (covered, len(ranges)) == (len(some), runs)


def made(root, number, schema, memory):
    version = Version(Dataset(root, schema), number, {})
    version.memory = memory
    return version


SILVER = {"touched": {"2026-02-03": 2}}
COUNTED = {"silver": 2, "counted": {"2026-02-03": 2}, "whole": True}
THIRD = [(date(2026, 2, 3), date(2026, 2, 3))]


@pytest.mark.parametrize(
    ("number", "silver", "gold", "due"),
    [
        (2, SILVER, None, plan.ALL),
        (2, SILVER, COUNTED, []),
        (3, SILVER, COUNTED, []),
        (3, {"touched": {"2026-02-03": 3}}, COUNTED, THIRD),
        (2, SILVER, COUNTED | {"whole": False}, plan.ALL),
        (1, SILVER, COUNTED, plan.ALL),  # silver was made again
    ],
)
def test_run_without_dates_counts_what_changed(tmp_path, number, silver, gold, due):
    source = made(tmp_path / "silver", number, "silver-2", silver)
    former = None if gold is None else made(tmp_path / "gold", 1, plan.SCHEMA, gold)
    assert plan.due(source, former) == due
