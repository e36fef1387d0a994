"""One local session for all tests of the jobs; without PySpark they are not collected."""

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.spark.engine import SETTINGS

# `ops/test all` runs them in .venv-spark, where finding none is a failure.
collect_ignore_glob = [] if find_spec("pyspark") else ["test_*.py"]

NOW = datetime(2026, 2, 10, tzinfo=UTC)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    for item in items:
        if item.path.parent == folder:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if shutil.which("java") is None:
        pytest.skip("java is missing; run: ops/env spark")
    from spark import session

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    folder = tmp_path_factory.mktemp("spark-local")
    conf = {"spark.local.dir": folder, **SETTINGS}
    engine = session.EngineSettings(
        master="local[2]", conf=tuple(f"{name}={value}" for name, value in conf.items())
    )
    built = session.build("tests", engine)
    yield built
    built.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Object storage. One for the session of Spark, which keeps the first address of a bucket."""
    from tests.support.s3server import s3_server

    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


def build_request(spark: Any, folder: Path, **more: Any) -> Any:
    """A request of a job from `folder/in` to `folder/out` that says nothing on the terminal."""
    from spark.progress import ProgressReporter
    from spark.request import JobRequest

    fields = {"source": folder / "in", "out": folder / "out", "now": NOW} | more
    return JobRequest(spark=spark, progress=ProgressReporter(quiet=True), **fields)


@pytest.fixture
def make_request(spark: Any, tmp_path: Path) -> Any:
    """Makes a request of a job in the test's folder: `make_request(first_day=…)`."""
    return partial(build_request, spark, tmp_path)


@pytest.fixture
def lake(tmp_path: Path) -> tuple[Path, Any]:
    """The folder of segments, and silver."""
    from spark.jobs.ingest import job

    return tmp_path / "in", job.silver(tmp_path / "out")


@pytest.fixture(scope="session")
def ingested_conversation(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """The tables that one run makes of `lakes.conversation()`, to read, and its report."""
    from spark.jobs.ingest import job
    from tests.spark import lakes

    folder = tmp_path_factory.mktemp("conversation")
    lakes.conversation()[0].export(folder / "in")
    report = job.run(build_request(spark, folder))
    return job.silver(folder / "out"), report


@pytest.fixture(scope="session")
def expected(spark: Any, ingested_conversation: tuple[Any, Any]) -> dict[str, list[str]]:
    """All these tables as plain rows."""
    from tests.spark import lakes

    return lakes.everything(spark, ingested_conversation[0])
