"""Errors of SQLite as errors for clients."""

import sqlite3
import subprocess
import sys

import pytest

from appliance.kernel import store_errors
from appliance.kernel.store_errors import StoreBusy, StoreFull, StoreSuspect, translate

UNPICKLED = """
import pickle
import appliance, doctor
from appliance.kernel.declaring_modules import import_named
from ops.write_docs import error_classes

import_named("", appliance, doctor)
for kind in error_classes():
    error = kind.__new__(kind, "sentence")
    error.__dict__.update(message="sentence", details={"a": 1}, extra={}, retry_after=2.0)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.args, vars(copy)) == (kind, error.args, vars(error)), kind
print(len(error_classes()))
"""


def sqlite_error(name):
    error = sqlite3.OperationalError("private text")
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("SQLITE_FULL", StoreFull),
        ("SQLITE_IOERR_WRITE", StoreFull),
        ("SQLITE_CORRUPT_INDEX", StoreSuspect),
        ("SQLITE_NOTADB", StoreSuspect),
        ("SQLITE_BUSY_SNAPSHOT", StoreBusy),
        ("SQLITE_LOCKED", StoreBusy),
        ("SQLITE_READONLY", StoreBusy),
        ("SQLITE_CANTOPEN", StoreBusy),
    ],
)
def test_expected_error_of_sqlite_becomes_one_for_clients(tmp_path, name, kind):
    error = translate(sqlite_error(name), tmp_path)
    assert type(error) is kind
    assert "private" not in error.message
    assert error.retry_after == 1.0


def test_unopened_file_on_full_disk_is_storage_full(tmp_path, monkeypatch):
    monkeypatch.setattr(store_errors, "free_bytes", lambda _: 0)
    assert type(translate(sqlite_error("SQLITE_CANTOPEN"), tmp_path)) is StoreFull


def test_every_error_class_passes_from_the_writer_process_to_the_caller():
    done = subprocess.run(
        [sys.executable, "-c", UNPICKLED], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 300
