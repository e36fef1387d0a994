"""Which days are stale, decided from what silver and gold remember."""

from datetime import date

import pytest

from spark.jobs.activity import plan
from spark.tables import Dataset, Version


def days(*numbers):
    return [f"2026-02-{number:02d}" for number in numbers]


@pytest.mark.parametrize(
    ("changed_days", "counted", "stale"),
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
def test_day_is_stale_if_it_or_a_day_next_to_it_changed(changed_days, counted, stale):
    def named(numbers):
        return {days(number)[0]: version for number, version in numbers.items()}

    checkpoint = {"changed_days": named(changed_days)}
    assert sorted(plan.stale_days(checkpoint, named(counted))) == days(*stale)
    newest = plan.newest_changes(checkpoint, named(counted))
    assert plan.stale_days(checkpoint, newest) == set()


def made(root, number, schema, checkpoint):
    version = Version(Dataset(root, schema), number, {})
    version.checkpoint = checkpoint
    return version


SILVER = {"changed_days": {"2026-02-03": 2}}
COUNTED = {"silver": 2, "counted": {"2026-02-03": 2, "2026-02-09": 0}}
THIRD, LATER = "2026-02-03", "2026-02-09"


@pytest.mark.parametrize(
    ("number", "silver", "gold", "due"),
    [
        (2, SILVER, None, {THIRD}),
        (2, SILVER, COUNTED, set()),
        (3, SILVER, COUNTED, set()),
        (3, {"changed_days": {THIRD: 3}}, COUNTED, {THIRD}),
        (2, {"changed_days": {THIRD: 2, LATER: 1}}, COUNTED, {LATER}),
        (1, {"changed_days": {THIRD: 1}}, COUNTED, {THIRD, LATER}),  # silver was made again
    ],
)
def test_run_without_dates_counts_what_changed(make_request, tmp_path, number, silver, gold, due):
    source = made(tmp_path / "silver", number, "silver-3", silver)
    former = None if gold is None else made(tmp_path / "gold", 1, plan.SCHEMA, gold)
    assert plan.days_to_count(make_request(), source, former) == due


@pytest.mark.parametrize(
    ("first", "last", "days"),
    [(3, 3, {THIRD}), (None, 8, {THIRD}), (4, None, {LATER}), (4, 8, set())],
)
def test_requested_days_are_those_of_silver_and_gold(make_request, tmp_path, first, last, days):
    source = made(tmp_path / "silver", 2, "silver-3", SILVER)
    former = made(tmp_path / "gold", 1, plan.SCHEMA, COUNTED)
    asked = make_request(
        first_day=first and date(2026, 2, first), last_day=last and date(2026, 2, last)
    )
    assert plan.days_to_count(asked, source, former) == days
