"""`export.target`: segments in object storage, complete or not there, and verified there."""

import json

import pytest

from appliance.backup.errors import TargetUnreachable
from appliance.backup.target_s3 import S3Target
from appliance.export import publish
from appliance.export.cli_target import open_target
from appliance.export.errors import OtherHistory
from appliance.export.manifests import SegmentDirectory
from tests.support.commands import agentlip
from tests.support.exports import Logged
from tests.support.s3server import BUCKET, SECRET

pytestmark = pytest.mark.slow


@pytest.fixture
def logged(tmp_path):
    made = Logged(tmp_path / "house", 0)
    made.add(1500)
    return made


@pytest.fixture
def url(s3, logged, tmp_path):
    """Where it is published; the keys are those of the target of backups in that bucket."""
    with logged.datadir.settings_file.open("a") as file:
        file.write(
            f"[[backup.targets]]\nname = 'offsite'\nurl = 's3://{BUCKET}/backups'\n"
            f"endpoint = '{s3.endpoint}'\naccess_key_file = '{s3.keys / 'access'}'\n"
            f"secret_key_file = '{s3.keys / 'secret'}'\n"
        )
    return f"s3://{BUCKET}/{tmp_path.name}"


@pytest.fixture
def export(logged, url):
    env = {"AGENTLIP_EXPORT__TARGET": url, "AGENTLIP_EXPORT__SEGMENT_ROWS_MAX": "500"}

    def run(*words, **more):
        done = agentlip("export", *words, cwd=logged.filled.path, **{**env, **more})
        assert SECRET not in done.out + done.err
        return done

    return run


def in_bucket(s3, tmp_path):
    return [name.removeprefix(f"{tmp_path.name}/") for name in s3.names(tmp_path.name)]


def test_segments_are_published_once_and_verified_where_they_are(s3, export, logged, url, tmp_path):
    assert export("segments").code == 0
    out = logged.datadir.dir / "export"
    here = sorted(str(file.relative_to(out)) for file in out.rglob("segment-*") if file.is_file())
    assert len(here) >= 6
    assert in_bucket(s3, tmp_path) == here
    for name in here:
        assert s3.get(f"{tmp_path.name}/{name}") == (out / name).read_bytes()
    verified = export("verify", url, "--json")
    assert verified.code == 0, verified
    assert verified.json["rows"] == 1500

    (first, *_) = [name for name in here if not name.endswith(".json")]
    s3.flip(f"{tmp_path.name}/{first}", 100)
    damaged = export("verify", url)
    assert damaged.code == 12
    assert first.rpartition("/")[2] in damaged.err


def test_killed_publication_is_continued_and_a_manifest_is_never_replaced(
    s3, export, logged, url, tmp_path, monkeypatch
):
    assert export("segments", AGENTLIP_EXPORT__TARGET="").code == 0
    target = open_target(url, logged.datadir)
    directory = SegmentDirectory(logged.datadir.dir / "export")
    count = len(directory.manifests())

    def kill(*_):
        raise TargetUnreachable("killed")

    with monkeypatch.context() as killed:
        killed.setattr(S3Target, "create", kill)
        with pytest.raises(TargetUnreachable):
            publish.publish(directory, target)
    (only,) = in_bucket(s3, tmp_path)
    assert not only.endswith(".json")
    assert publish.publish(directory, target) == count
    assert publish.publish(directory, target) == 0
    assert publish.first_missing(directory, target) is None

    name = f"{tmp_path.name}/{publish.names(directory.manifests()[0])[1]}"
    other = json.dumps(json.loads(s3.get(name)) | {"epoch": "other"}).encode()
    s3.put(name, other)
    monkeypatch.setattr(S3Target, "list", lambda *_: {})
    with pytest.raises(OtherHistory, match="another segment"):
        publish.publish(directory, target)
    assert s3.get(name) == other


def removed(done):
    return sum(log["removed"] for log in done.json["logs"])


def test_only_published_segments_are_removed_here(s3, export, logged, url):
    assert export("segments", AGENTLIP_EXPORT__TARGET="").code == 0
    directory = SegmentDirectory(logged.datadir.dir / "export")
    old = {"AGENTLIP_EXPORT__RETENTION_DAYS": "1"}
    every = len(directory.manifests())
    assert removed(export("compact", "--json", **old)) == 0, "nothing was published before"
    assert removed(export("compact", "--json", **old)) > 0
    assert len(directory.manifests()) < every
    assert export("verify", url).code == 0
