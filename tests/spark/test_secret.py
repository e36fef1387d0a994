"""Secrets from files, and the settings and addresses they give."""

import pytest

from spark import secret, session
from spark.errors import Usage

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
