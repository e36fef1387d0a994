"""A byte order mark, which some editors write, changes nothing in files that people write."""

import io
import sys
from codecs import BOM_UTF8

import pytest

from appliance.backup.restore_settings import _values
from appliance.backup.settings import TargetSettings
from appliance.backup.target_s3 import _content
from appliance.cli_support import text_of
from appliance.courier.cli_run import check_settings_file
from appliance.jobs.spec_files import read_file
from appliance.kernel.config import read_toml, secret
from appliance.outbox.cli_send import json_object
from appliance.workspace.datadir import DataDir
from doctor.redaction import _texts_of


def token_of(path):
    datadir = DataDir(path.parent)
    datadir.dir.mkdir(exist_ok=True)
    datadir.token_file.write_bytes(path.read_bytes())
    return datadir.read_token()


def values_of(path):
    datadir = DataDir(path.parent)
    datadir.settings_file.write_bytes(path.read_bytes())
    return _values(datadir)


def key_of(path):
    target = TargetSettings("s3", "s3://bucket", ca_file=path.name)
    return _content(path.parent, target, "ca_file")


def job_of(path):
    file = read_file(path)
    return file.spec, file.error and file.error.message


JOB = b'after = ["other"]\ncommand = ["true"]\n'
SETTINGS = b"[http]\nport = 8080\n"
READERS = {
    "settings": (read_toml, SETTINGS),
    "settings before a restore": (values_of, SETTINGS),
    "settings of triggers": (check_settings_file, b"[courier]\ntriggers = []\n"),
    "a job": (job_of, JOB),
    "a wrong job": (job_of, b"comand = 1\n"),
    "a secret": (lambda path: secret(str(path), "file"), b"hush\n"),
    "a key of a bucket": (key_of, b"key"),
    "the token of the workspace": (token_of, b"agentlip_x\n"),
    "JSON of an option": (lambda path: json_object(f"@{path}", "--meta"), b'{"a": 1}'),
    "secrets to redact": (_texts_of, b"a-long-secret\n"),
}


@pytest.mark.parametrize("name", READERS)
def test_mark_at_the_beginning_changes_nothing(tmp_path, name):
    read, data = READERS[name]
    path = tmp_path / "job.toml"
    path.write_bytes(data)
    without = read(path)
    path.write_bytes(BOM_UTF8 + data)
    assert read(path) == without


def test_mark_at_the_beginning_of_standard_input_is_dropped(monkeypatch):
    piped = io.TextIOWrapper(io.BytesIO(BOM_UTF8 + "grüße\n".encode()))
    monkeypatch.setattr(sys, "stdin", piped)
    assert text_of("-") == "grüße"
