"""S1: a long log exported to Parquet by the command line, beside plain pyarrow writing the rows.

It measures the whole process, from its start to its exit: interpreter and imports, reading
SQLite, encoding, hashing, syncing. The baseline already has the same rows in memory.
"""

import json
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet

from appliance.export.schema import columns
from appliance.export.table_writer import LEVEL, ROW_GROUP_ROWS, arrow_schema
from tests.bench import machine, runner
from tests.bench.client import NOW
from tests.bench.figures import Figure, Row, median
from tests.bench.hub import history
from tests.bench.runner import Options
from tests.bench.target import RowFailed
from tests.support.commands import environment

ROWS = ("S1",)
TARGET = 300_000  # rows a second
EVENTS = 1_000_000
SECONDS_MAX = 600


def run(options: Options) -> dict[str, Any]:
    """The log of a workspace that is there already is exported elsewhere and stays as it is."""
    with runner.own_folder(options.parent) as (folder, conditions):
        row = runner.measure_row("S1", lambda: s1(options, folder))
    warnings = [
        f"S1: others used {item['others_cores']} cores: the machine was not quiet"
        for item in row.get("runs", [])
        if item["others_cores"] > machine.OTHER_CORES_MAX
    ]
    return runner.result("export", [row], options, conditions, warnings)


def s1(options: Options, position: Path) -> Row:
    workspace = options.workspace or position / "workspace"
    if options.workspace is None:
        history.make(workspace, options.messages or (20_000 if options.quick else EVENTS))
    row = Row("S1", "export of the log to Parquet with manifests, one process")
    out, rates, floors = position / "out", [], []
    for _ in range(1 if options.quick else 5):
        shutil.rmtree(out, ignore_errors=True)
        with Use() as use:
            output = export(workspace, out)
        seconds = use.seconds
        rates.append(output["rows"] / seconds)
        table = exported(out, output["rows"])
        floor = write(table, position / "floor.parquet")
        floors.append(output["rows"] / floor)
        row.runs.append(
            {
                "variant": "parquet",
                "seconds": round(seconds, 3),
                "processor_seconds": round(use.ours, 3),
                "others_cores": round(use.others / seconds, 2),
                "floor_seconds": round(floor, 3),
            }
        )
        row.counted = {
            "rows": output["rows"],
            "segments": output["segments"],
            "bytes": output["bytes"],
        }
    row.figures = [Figure("export", median(rates), "rows/s", at_least=TARGET)]
    row.floor = {
        "what": "the same rows, in memory already, written by pyarrow alone: one file,"
        " the same compression",
        "rows_per_second": round(median(floors)),
    }
    return row


class Use:
    """Wall time, and whose processor time it was: the export's own, or somebody else's."""

    def __enter__(self) -> "Use":
        self._began, self._busy, self._own = (
            NOW(),
            machine.busy_seconds(),
            machine.generator_seconds(),
        )
        return self

    def __exit__(self, *failure: object) -> None:
        self.seconds = NOW() - self._began
        self.ours = machine.generator_seconds() - self._own
        self.others = max(0.0, machine.busy_seconds() - self._busy - self.ours)


def export(workspace: Path, out: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "appliance", "export", "segments", "--out", str(out), "--json"],
        cwd=workspace,
        env=environment(),
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise RowFailed(done.stderr.decode("utf-8", "replace")[-500:])
    output: dict[str, Any] = json.loads(done.stdout)["logs"][0]
    return output


def exported(out: Path, rows: int) -> arrow.Table:
    """All that was written, read back: it must be all, and each once."""
    files = sorted(out.glob("events/*/*.parquet"), key=lambda path: path.name)
    schema = arrow_schema(columns("events"))
    table = arrow.concat_tables(
        [parquet.read_table(file, partitioning=None, schema=schema) for file in files]
    )
    ids = table["event_id"].to_pylist()
    if len(ids) != rows or any(a >= b for a, b in pairwise(ids)):
        raise RowFailed("events are missing or twice")
    return table


def write(table: arrow.Table, path: Path) -> float:
    began = NOW()
    parquet.write_table(
        table,
        path,
        compression="zstd",
        compression_level=LEVEL,
        use_dictionary=["epoch", "name", "scope_channel_id"],
        row_group_size=ROW_GROUP_ROWS,
    )
    return NOW() - began
