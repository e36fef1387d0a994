"""One local session for all tests of the jobs; without PySpark they are not collected."""

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

# `ops/test all` runs them in .venv-spark, where finding none is a failure.
collect_ignore_glob = [] if find_spec("pyspark") else ["test_*.py"]

NOW = datetime(2026, 2, 10, tzinfo=UTC)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if shutil.which("java") is None:
        pytest.skip("java is missing; run: ops/env spark")
    from spark import session

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    folder = tmp_path_factory.mktemp("spark-local")
    engine = session.EngineSettings(
        master="local[2]",
        partitions=2,
        conf=(
            f"spark.local.dir={folder}",
            "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
            "spark.sql.codegen.wholeStage=false",
            "spark.sql.codegen.factoryMode=NO_CODEGEN",
        ),
    )
    built = session.build("tests", engine)
    yield built
    built.stop()


@pytest.fixture
def ask(spark: Any, tmp_path: Path) -> Any:
    """Makes a request of a job: `ask()`, `ask(first_day=…)`; says nothing on the terminal."""
    from spark.progress import ProgressReporter
    from spark.request import JobRequest

    def make(**more: Any) -> JobRequest:
        fields = {"source": tmp_path / "in", "out": tmp_path / "out", "now": NOW} | more
        return JobRequest(spark=spark, progress=ProgressReporter(quiet=True), **fields)

    return make
