"""The export: columns of the table, crashes at each step, other exporters."""

import fcntl
import json

import pytest

from appliance.busfile import jsonl, retention
from appliance.busfile.jsonl import ExportRunning, export
from tests.support.bus import NOW, BusFixture


def lines(bus):
    return [json.loads(line) for line in bus.paths.export.read_text().splitlines()]


def test_lines_have_the_columns_of_the_table_and_references_of_blobs(bus):
    bus.send(id="m", payload={"a": "ü"}, to_agent="x")
    bus.send(payload="x" * 5000)
    assert export(bus.connection, bus.paths) == 2
    first, second = lines(bus)
    assert list(first) == [
        "seq", "id", "ts_ms", "from_agent", "to_agent", "type", "correlation_id", "in_reply_to",
        "payload", "payload_ref", "bus",
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
        b'{"seq":9000000000000000000}\n',
        b'[1]\n{"bus":"0123"}\n' + b"[" * 100_000 + b"\n\xff\n",
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
    lines = [line for line in text.splitlines() if b'"bus"' in line and b"ts_ms" in line]
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


def payloads(bus):
    texts = bus.paths.export.read_bytes().splitlines()
    return [json.loads(text).get("payload") for text in texts if text.startswith(b'{"seq"')]


def forge(bus, lines):
    """A line that says more than the bus has ever had."""
    return [*lines, json.dumps({**json.loads(lines[-1]), "seq": 2**62}).encode()]


CHANGES = {
    "the file of a clone": lambda bus, lines: other_bus(bus),
    "a line with a huge number": forge,
    "a huge number and nothing else": lambda bus, lines: [b'{"seq":4611686018427387904}'],
    "an older version": lambda bus, lines: lines[:1],
    "another bus merged into it": lambda bus, lines: [lines[0], *other_bus(bus), *lines[1:]],
    "edited payloads": lambda bus, lines: [line.replace(b"own", b"odd") for line in lines],
    "an empty file": lambda bus, lines: [],
    "no file": None,
}


def other_bus(bus):
    (bus.paths.workspace / "other").mkdir()
    other = BusFixture(bus.paths.workspace / "other")
    for number in range(5):
        other.send(payload=f"other {number}")
    export(other.connection, other.paths)
    return other.paths.export.read_bytes().splitlines()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("exported_before", [True, False])
def test_nothing_is_pruned_that_is_not_in_the_file(bus, change, exported_before):
    for number in range(3):
        bus.send(payload=f"own {number}")
    export(bus.connection, bus.paths)
    lines = bus.paths.export.read_bytes().splitlines()
    if not exported_before:  # a new file beside a file that is part of the repository
        bus.connection.close()
        for path in bus.paths.dir.glob("bus.db*"):
            path.unlink()
        bus = BusFixture(bus.paths.workspace)
        for number in range(3):
            bus.send(payload=f"own {number}")
    bus.paths.export.unlink()
    if CHANGES[change]:
        changed = CHANGES[change](bus, lines)
        bus.paths.export.write_bytes(b"".join(line + b"\n" for line in changed))
    if exported_before:
        assert bus.run(retention.prune, 2 * NOW, 0) == 0, "the file has to be compared first"
        assert jsonl.lag(bus.connection, bus.paths.export) == (3 if CHANGES[change] else None)
    for _ in range(2):
        export(bus.connection, bus.paths)
    assert {'"own 0"', '"own 1"', '"own 2"'} <= set(payloads(bus))
    assert bus.run(retention.prune, 2 * NOW, 0) == 3
    bus.send(payload="own 3")
    assert export(bus.connection, bus.paths) == 1
    assert payloads(bus)[-1] == '"own 3"'


def test_lines_of_an_exporter_without_ids_are_not_repeated(bus):
    bus.send(payload="own 0")
    cursor = bus.connection.execute("SELECT * FROM messages")
    row = dict(zip([column[0] for column in cursor.description], cursor.fetchone(), strict=True))
    bus.paths.export.write_text(json.dumps(row) + "\n")
    bus.send(payload="own 1")
    export(bus.connection, bus.paths)
    assert payloads(bus) == ['"own 0"', '"own 1"']
