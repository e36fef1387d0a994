"""Files of jobs: what is read, and which line a wrong one is refused with."""

import pytest

from appliance.jobs.spec import EVENTS
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


TRIGGER = """[[on]]
source = "{}"
event = "{}"
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
        ("retries = 2", 'scopes = ["hub:read", "root"]', 4, "scopes: 'root' is not one of admin, "),
        (
            'LANG = "C"',
            f'LANG = "C"\n{TRIGGER.format("hub", "nope.created")}',
            13,
            "on[0].event: 'nope.created' is not one of ceiling.warned, ",
        ),
        (
            'LANG = "C"',
            f'LANG = "C"\n{TRIGGER.format("export", "segment.made")}',
            13,
            "on[0].event: 'segment.made' is not one of segment.written",
        ),
    ],
)
def test_wrong_file_is_refused_with_its_line(tmp_path, before, after, line, reason):
    error = read(tmp_path, GOOD.replace(before, after)).error
    assert error.message.startswith(f"jobs/report.toml, line {line}: "), error.message
    assert reason in error.message
    assert error.details == {"file": "jobs/report.toml", "line": line}


@pytest.mark.parametrize(
    "scope",
    ["hub:read", "hub:post@ch_1", "inbox:read@lab", "streams:durable/*:enqueue", "views:v:read"],
)
def test_scope_of_a_token_is_one_of_a_job(tmp_path, scope):
    assert read(tmp_path, f'command = ["x"]\nscopes = ["{scope}"]').error is None


EVERY = [(source, name) for source, names in EVENTS.items() for name in names.split()]


@pytest.mark.parametrize(("source", "event"), [*EVERY, *((source, "*") for source in EVENTS)])
def test_event_and_pattern_of_its_source_are_accepted(tmp_path, source, event):
    text = f'command = ["x"]\n{TRIGGER.format(source, event)}'
    assert read(tmp_path, text).error is None


NAMING = """command = ["x"]
after = ["{after}"]
{trigger}where = "{where}"
"""


@pytest.mark.parametrize(
    ("after", "source", "where", "problem"),
    [
        ("other", "hub", "ops", ""),
        ("over-http", "hub", "op*", ""),
        ("wrong", "outbox", "la*", ""),
        ("other", "outbox", "lba", "line 6: on[0].where: 'lba' is not one of default, lab"),
        ("other", "courier", "any stream", ""),
        ("other", "export", "events", ""),
        ("other", "export", "event", "line 6: on[0].where: 'event' is not one of audit, broker, "),
        ("nope", "hub", "ops", "line 2: after: 'nope' is not one of naming, other, "),
        ("other", "hub", "no-such", "line 6: on[0].where: 'no-such' is not one of ops"),
    ],
)
def test_names_of_jobs_channels_and_meshes_are_checked_if_they_are_known(
    tmp_path, after, source, where, problem
):
    event = EVENTS[source].split()[0]
    text = NAMING.format(after=after, where=where, trigger=TRIGGER.format(source, event))
    folder = tmp_path / "jobs"
    assert (read(tmp_path, text, "naming").error is None) == (where != "event")
    (folder / "other.toml").write_text('command = ["x"]')
    (folder / "wrong.toml").write_text("command = 1")
    known = {"after": ["over-http"], "hub": ["ops"], "outbox": ["default", "lab"]}
    (file,) = [file for file in read_folder(tmp_path, known) if file.name == "naming"]
    message = "" if file.error is None else file.error.message
    assert message.startswith(f"jobs/naming.toml, {problem}" if problem else ""), message
    assert bool(message) == bool(problem)
    (file, *_) = read_folder(tmp_path, {**known, "hub": [], "outbox": []})
    is_fixed = after == "nope" or where == "event"
    assert (file.error is None) == (not is_fixed), "without stores any channel is permitted"


@pytest.mark.parametrize("name", ["Report", "all", "runs", "a" * 41])
def test_wrong_name_is_refused(tmp_path, name):
    assert "a name has at most 40" in read(tmp_path, GOOD, name).error.message


def test_file_that_is_not_text_or_too_long_is_refused(tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a.toml").write_bytes(b"\xff")
    (tmp_path / "jobs" / "b.toml").write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    (tmp_path / "jobs" / "c.toml").symlink_to(tmp_path / "nothing")
    assert [file.error is None for file in read_folder(tmp_path)] == [False] * 3


def test_files_after_the_limit_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("appliance.jobs.spec_files.FILES_MAX", 2)
    (tmp_path / "jobs").mkdir()
    for name in "abcd":
        (tmp_path / f"jobs/{name}.toml").write_text(GOOD)
    files = read_folder(tmp_path)
    assert [(file.name, file.problem is None) for file in files] == [
        ("a", True), ("b", True), ("c", False),
    ]  # fmt: skip
    assert "jobs/c.toml, line 1: only the first 2 of 4 files are read" in files[-1].problem


def test_jobs_that_wait_for_each_other_are_refused(tmp_path):
    (tmp_path / "jobs").mkdir()
    for name, after in (("a", "c"), ("b", "a"), ("c", "b"), ("d", "a"), ("e", "x")):
        text = f'command = ["x"]\nafter = ["{after}"]\n'
        (tmp_path / "jobs" / f"{name}.toml").write_text(text)
    errors = {file.name: file.error for file in read_folder(tmp_path)}
    assert [name for name, error in errors.items() if error] == ["a", "b", "c"]
    message = "jobs/a.toml, line 2: these jobs wait for each other: a, c, b, a"
    assert errors["a"].message == message
