"""Secrets from files, the settings they give, and the tables that a Connect server lists."""

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from spark import connect, secret, session
from spark.errors import Usage
from tests.support.gold import record_run

SECRET = "0123456789abcdef"


@pytest.mark.parametrize(
    "text", ["", "short", "two words of a secret", "\x00" * 20, "ä" * 20, "a" * 5000]
)
def test_file_without_a_secret_is_refused(tmp_path, text):
    (tmp_path / "secret").write_text(text)
    with pytest.raises(Usage, match="contains no secret") as refused:
        secret.read(tmp_path / "secret")
    assert text == "" or text not in str(refused.value)


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(),
                                  lambda path: path.write_bytes(b"\xff" * 20)])  # fmt: skip
def test_file_that_cannot_be_read_is_refused(tmp_path, make):
    make(tmp_path / "secret")
    with pytest.raises(Usage, match="cannot be read") as refused:
        secret.read(tmp_path / "secret")
    assert "openssl rand" in refused.value.hint


def test_white_space_around_a_secret_does_not_count(tmp_path):
    (tmp_path / "secret").write_text(f" {SECRET}\n")
    assert secret.read(tmp_path / "secret") == SECRET
    assert secret.read(None) is None


@pytest.mark.parametrize(("master", "authenticated"), [
    ("spark://master:7077", True), ("local[*]", False), ("k8s://https://host", False),
])  # fmt: skip
def test_secret_authenticates_a_standalone_cluster_only(
    tmp_path, monkeypatch, master, authenticated
):
    (tmp_path / "secret").write_text(SECRET)
    monkeypatch.setenv(session.SECRET_FILE, str(tmp_path / "secret"))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "")
    monkeypatch.setenv("SPARK_MASTER", master)  # as the compose file sets it
    for engine in (session.EngineSettings(), session.EngineSettings(master=master)):
        chosen = session.settings(engine)
        assert ("spark.authenticate" in chosen) is authenticated
        assert SECRET not in str(chosen)


@pytest.mark.parametrize(("url", "expected"), [
    ("sc://connect:15002", "sc://connect:15002/;authorization=Bearer%20abc"),
    ("sc://connect:15002/;user_id=u", "sc://connect:15002/;user_id=u;authorization=Bearer%20abc"),
    ("sc://localhost", "sc://localhost/;token=abc"),
    ("sc://spark.example/;use_ssl=true", "sc://spark.example/;use_ssl=true;token=abc"),
])  # fmt: skip
def test_token_is_sent_as_the_connection_allows(url, expected):
    assert session.with_token(url, "abc") == expected
    assert session.with_token(url, None) == url


def test_tables_of_the_lake_are_listed_by_name_and_read_as_they_are_now(spark, tmp_path):
    lake = tmp_path / "it's a lake"
    write(lake / "silver", messages=2)
    write(lake / "gold/activity", activity=1, pairs=3)
    known = {}
    try:
        assert connect.register(spark, lake, known) == 3
        assert known == {"messages": 0, "activity": 0, "activity_pairs": 0}
        assert connect.register(spark, lake, known) == 0
        assert {row.tableName for row in spark.sql("SHOW TABLES").collect()} >= set(known)
        write_deltalake(lake / "gold/activity/pairs", rows(2), mode="append")
        assert spark.table("activity_pairs").count() == 3  # half of the next run is not there yet
        record_run(lake / "gold/activity", "activity-2", {"activity": 0, "pairs": 1}, 2)
        assert connect.register(spark, lake, known) == 1
        assert spark.table("activity_pairs").count() == 5
    finally:
        for name in known:
            spark.sql(f"DROP VIEW {name}")


def write(root, **tables):
    for table, count in tables.items():
        write_deltalake(root / table, rows(count))
    record_run(root, "any-1", dict.fromkeys(tables, 0))


def rows(count):
    return pa.table({"n": list(range(count))})


def test_arguments_name_what_is_wrong(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv(connect.TOKEN_FILE, str(tmp_path / "missing"))
    assert connect.main(["--lake", str(tmp_path)]) == 2
    assert "hint: create one" in capsys.readouterr().err
