"""Files of jobs: what is read, and which line a wrong one is refused with."""

import pytest

from appliance.jobs.spec_files import FILE_BYTES_MAX, read_folder

GOOD = """\
command = ["ops/report", "--week"]
cron = "0 6 * * 1"
time_zone = "Europe/Berlin"
retries = 2

[backoff]
factor = 3.0

[environment]
LANG = "C"
"""


def read(tmp_path, text, name="report"):
    folder = tmp_path / "jobs"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.toml").write_text(text)
    (file,) = read_folder(tmp_path)
    return file


def test_file_is_read(tmp_path):
    file = read(tmp_path, GOOD)
    assert (file.name, file.error, file.spec.backoff.factor) == ("report", None, 3.0)
    assert read_folder(tmp_path / "elsewhere") == []


@pytest.mark.parametrize(
    ("before", "after", "line", "reason"),
    [
        ("retries = 2", "retries = ", 4, "Invalid value"),
        ("retries = 2", "retires = 2", 4, "unknown field `retires`"),
        ("factor = 3.0", "faktor = 3.0", 7, "unknown field `faktor`"),
        ('"0 6 * * 1"', '"0 6 * * 9"', 2, "Bad day-of-week"),
        ("Berlin", "Bonn", 3, "knows no time zone 'Europe/Bonn'"),
        ("retries = 2", "interval_seconds = 60", 4, "not both"),
        ('LANG = "C"', 'LANG = "C"\n[secrets]\nLANG = "f"', 12, "LANG is in `environment` too"),
        ('command = ["ops/report", "--week"]', "", 1, "missing required field `command`"),
        ("retries = 2", 'spark = true\nimage = "x"', 4, "runs what the image has"),
        ("retries = 2", 'mounts = ["lake:/data"]', 4, "only a job with an `image` has `mounts`"),
        ('LANG = "C"', 'LANG = """', 11, "Unterminated string"),
    ],
)
def test_wrong_file_is_refused_with_its_line(tmp_path, before, after, line, reason):
    error = read(tmp_path, GOOD.replace(before, after)).error
    assert error.message.startswith(f"jobs/report.toml, line {line}: "), error.message
    assert reason in error.message
    assert error.details == {"file": "jobs/report.toml", "line": line}


@pytest.mark.parametrize("name", ["Report", "all", "runs", "a" * 41])
def test_wrong_name_is_refused(tmp_path, name):
    assert "a name has at most 40" in read(tmp_path, GOOD, name).error.message


def test_file_that_is_not_text_or_too_long_is_refused(tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a.toml").write_bytes(b"\xff")
    (tmp_path / "jobs" / "b.toml").write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    (tmp_path / "jobs" / "c.toml").symlink_to(tmp_path / "nothing")
    assert [file.error is None for file in read_folder(tmp_path)] == [False] * 3


def test_jobs_that_wait_for_each_other_are_refused(tmp_path):
    (tmp_path / "jobs").mkdir()
    for name, after in (("a", "c"), ("b", "a"), ("c", "b"), ("d", "a"), ("e", "x")):
        text = f'command = ["x"]\nafter = ["{after}"]\n'
        (tmp_path / "jobs" / f"{name}.toml").write_text(text)
    errors = {file.name: file.error for file in read_folder(tmp_path)}
    assert [name for name, error in errors.items() if error] == ["a", "b", "c"]
    message = "jobs/a.toml, line 2: these jobs wait for each other: a, c, b, a"
    assert errors["a"].message == message
