"""What the doctor says of exported segments: broken ones, missing ones, a log that waits."""

import json
import os

import pytest

from appliance.export import segment
from appliance.export.exporter import Exporter
from appliance.export.manifests import Catalogue
from appliance.export.segment import Limits
from appliance.export.source import open_log
from appliance.kernel.clock import SystemClock
from tests.doctor.house import House
from tests.support.exports import Logged

ROWS = ("jobs.export-lag", "jobs.segments", "jobs.segments-content")


@pytest.fixture
def house(tmp_path):
    """A workspace with three segments."""
    logged = Logged(tmp_path, 50)
    directory = Catalogue(logged.datadir.dir / "export")
    with open_log(logged.datadir) as log, directory.only_writer():
        Exporter(log, directory, "jsonl", Limits(20, 1 << 20, 1000), SystemClock()).run()
    house = House(tmp_path)
    house.logged = logged
    house.files = [directory.data(one) for one in directory.manifests()]
    assert len(house.files) == 3
    return house


def said(house, row):
    return [f"{found.subject}: {found.sentence}" for found in house.find(row)]


def test_whole_segments_and_none_at_all_are_no_finding(house, tmp_path):
    for row in ROWS:
        assert house.find(row) == []
    house.data.settings_file.write_text("[jobs]\nexport = true\n")
    assert house.find("jobs.export-lag") == []
    house.data.settings_file.write_text("[jobs]\nexport_dir = 'elsewhere'\n")
    for row in ROWS:
        assert house.find(row) == []


def test_a_log_that_waits_too_long_is_a_warning_where_the_appliance_exports(house):
    house.logged.add(1)  # written last year, and in no segment
    assert house.find("jobs.export-lag") == []
    house.data.settings_file.write_text("[jobs]\nexport = true\n")
    (sentence,) = said(house, "jobs.export-lag")
    assert sentence.startswith("export: events after 50 have waited ")


def test_a_missing_and_a_torn_segment_and_a_hole_are_named(house):
    first, second, third = house.files
    first.unlink()
    os.truncate(third, 10)
    found = said(house, "jobs.segments")
    assert len(found) == 2
    assert "is missing; its manifest is there" in found[0]
    assert "has 10 bytes; its manifest says" in found[1]
    second.with_name(second.stem + segment.MANIFEST).unlink()
    assert "events 21 to 40 are in no segment" in said(house, "jobs.segments")[-1]


def test_other_bytes_are_found_by_reading_them(house):
    data = bytearray(house.files[0].read_bytes())
    data[30] ^= 1
    house.files[0].write_bytes(data)
    assert house.find("jobs.segments") == []
    assert "holds other bytes" in said(house, "jobs.segments-content")[0]


def test_a_manifest_of_a_newer_program_is_named(house):
    path = house.files[1].with_name(house.files[1].stem + segment.MANIFEST)
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 2}))
    assert "schema version 2" in said(house, "jobs.segments")[0]
