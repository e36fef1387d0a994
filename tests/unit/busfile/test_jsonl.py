"""The export: columns of the table, crashes at each step, other exporters."""

import fcntl
import json

import pytest

from appliance.busfile.jsonl import ExportRunning, export


def lines(bus):
    return [json.loads(line) for line in bus.paths.export.read_text().splitlines()]


def test_lines_have_the_columns_of_the_table_and_references_of_blobs(bus):
    bus.send(id="m", payload={"a": "ü"}, to_agent="x")
    bus.send(payload="x" * 5000)
    assert export(bus.connection, bus.paths) == 2
    first, second = lines(bus)
    assert list(first) == [
        "seq", "id", "ts_ms", "from_agent", "to_agent", "type", "correlation_id", "in_reply_to",
        "payload", "payload_ref",
    ]  # fmt: skip
    assert (first["payload"], first["to_agent"]) == ('{"a":"ü"}', "x")
    assert (second["payload"], second["payload_ref"][:7]) == (None, "sha256-")
    assert export(bus.connection, bus.paths) == 0
    assert bus.rows("SELECT last_seq FROM export_state") == [(2,)]


@pytest.mark.parametrize(
    "damage",
    [
        b'{"seq":2,"id":"tor',  # the crash was in the write of a line
        b'{"seq":3}\nnot json',
        b'{"seq":3}\nnot json\n',
        b"x" * 200_000,
    ],
)
def test_torn_line_is_cut_off_and_nothing_is_missing_or_repeated(bus, damage):
    for _ in range(3):
        bus.send()
    export(bus.connection, bus.paths)
    with bus.paths.export.open("ab") as file:
        file.write(damage)
    bus.send()
    export(bus.connection, bus.paths)
    text = bus.paths.export.read_bytes()
    assert text.endswith(b"\n")
    lines = [line for line in text.splitlines() if line.startswith(b'{"seq":') and len(line) > 20]
    assert [json.loads(line)["seq"] for line in lines] == [1, 2, 3, 4]


def test_second_exporter_is_refused(bus):
    bus.send()
    with bus.paths.export.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ExportRunning):
            export(bus.connection, bus.paths)
    assert export(bus.connection, bus.paths) == 1


def test_link_is_not_followed(bus, tmp_path):
    bus.paths.export.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="can't be written"):
        export(bus.connection, bus.paths)
