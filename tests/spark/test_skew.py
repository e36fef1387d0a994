"""A busy channel and a message with many edits leave no task much more to do than the others."""

import pytest

from tests.bench.spark import made, stages
from tests.spark.engine import SETTINGS

pytestmark = pytest.mark.slow  # a session of its own, with the planning of a real run

EVENTS = 40_000
# As for a log that is a hundred times as long: small partitions become one only below this size.
SMALL = "spark.sql.adaptive.coalescePartitions.minPartitionSize=128k"


def test_no_task_has_five_times_the_rows_of_the_median_one(tmp_path):
    made.export(tmp_path / "in", EVENTS, skewed=True)
    quick = [f"--conf={name}={SETTINGS[name]}" for name in SETTINGS
             if "codegen" in name or "driver" in name]  # fmt: skip
    more = ("--partitions", "8", "--conf", SMALL, *quick)
    run = stages.run(tmp_path / "in", tmp_path / "out", *more)
    tasks = [stages.describe(stage) for stage in run.values()]
    assert sum(stage["rows"] for stage in tasks) > EVENTS
    assert max(stage["tasks"] for stage in tasks) >= 8
    assert [stage for stage in tasks if stage["most_rows_by_median"] >= 5] == []
