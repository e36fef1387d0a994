"""What the doctor says of exported segments: broken ones, missing ones, a log that waits."""

import json
import os

import pytest

from appliance.export import segment
from appliance.export.exporter import Exporter
from appliance.export.manifests import SegmentDirectory
from appliance.export.segment import SegmentLimits
from appliance.export.source import open_log
from appliance.kernel.clock import SystemClock
from tests.doctor.workspace import WorkspaceFixture
from tests.support.exports import Logged


@pytest.fixture
def workspace(tmp_path):
    """A workspace with three segments."""
    logged = Logged(tmp_path, 50)
    directory = SegmentDirectory(logged.datadir.dir / "export")
    with open_log(logged.datadir) as log, directory.only_writer():
        Exporter(log, directory, "jsonl", SegmentLimits(20, 1 << 20, 1000), SystemClock()).run()
    workspace = WorkspaceFixture(tmp_path)
    workspace.logged = logged
    workspace.files = [directory.data(finding) for finding in directory.manifests()]
    assert len(workspace.files) == 3
    return workspace


def messages(workspace, row):
    return [f"{finding.subject}: {finding.message}" for finding in workspace.find(row)]


def test_missing_and_broken_segments_and_gaps_are_found(workspace):
    first, second, third = workspace.files
    first.unlink()
    os.truncate(third, 10)
    finding = messages(workspace, "export.segments")
    assert len(finding) == 2
    assert "is missing, but its manifest exists" in finding[0]
    assert "has 10 bytes; its manifest requires" in finding[1]
    second.with_name(second.stem + segment.MANIFEST).unlink()
    assert "events 21 to 40 are in no segment" in messages(workspace, "export.segments")[-1]


def test_manifest_of_a_newer_program_is_found(workspace):
    path = workspace.files[1].with_name(workspace.files[1].stem + segment.MANIFEST)
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 2}))
    assert "schema version 2" in messages(workspace, "export.segments")[0]
