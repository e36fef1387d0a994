"""`.venv-spark/bin/python -m tests.bench.spark.growth`: longer and longer logs through the image.

Each length in a container of its own with a fixed memory limit: ingest, then activity, then ingest
of nothing new. One JSON object on stdout: seconds, and whether the kernel had to end one.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.spark import made


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spark.growth", description=__doc__)
    parser.add_argument("--events", default="100000,1000000,10000000", help="lengths, in order")
    parser.add_argument("--image", default="agentlip-spark:local")
    parser.add_argument("--memory", default="2g", help="of the container, all in all")
    parser.add_argument("--directory", type=Path, help="where logs are made; kept, and used again")
    flags = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=flags.directory) as scratch:
        for count in map(int, flags.events.split(",")):
            export = (flags.directory or Path(scratch)).resolve() / f"export-{count}"
            if not export.exists():
                made.export(export, count)
            rows.append(grown(flags, count, export))
            print(rows[-1], file=sys.stderr, flush=True)
    print(json.dumps({"memory": flags.memory, "rows": rows}, indent=1))
    return any(row["failed"] for row in rows)


def grown(flags: argparse.Namespace, count: int, export: Path) -> dict[str, Any]:
    lake = subprocess.check_output(["docker", "volume", "create"], text=True).strip()
    try:
        turns = {
            "ingest": run(flags, export, lake, "ingest", "--in=/log", "--out=/data"),
            "activity": run(flags, export, lake, "activity", "--in=/data"),
            "ingest_again": run(flags, export, lake, "ingest", "--in=/log", "--out=/data"),
        }
    finally:
        subprocess.run(["docker", "volume", "rm", lake], stdout=subprocess.DEVNULL, check=False)
    return {
        "events": count,
        **{f"{name}_seconds": turn["seconds"] for name, turn in turns.items()},
        "steps": {**turns["ingest"]["steps"], **turns["activity"]["steps"]},
        "rows_per_second": round(count / turns["ingest"]["seconds"]),
        "failed": [name for name, turn in turns.items() if turn["code"]],
    }


def run(flags: argparse.Namespace, export: Path, lake: str, *words: str) -> dict[str, Any]:
    """As docs/how-to/spark.md runs them, from the start of the container to its end."""
    command = [
        "docker", "run", "--rm", "--read-only", "--cap-drop=ALL", f"--memory={flags.memory}",
        f"--memory-swap={flags.memory}", "-v", f"{export}:/log:ro", "-v", f"{lake}:/data",
        flags.image, *words, "--json", "--quiet",
    ]  # fmt: skip
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = round(time.monotonic() - began, 1)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
    steps = json.loads(done.stdout.splitlines()[-1])["seconds"] if done.returncode == 0 else {}
    return {"seconds": seconds, "code": done.returncode, "steps": steps}


if __name__ == "__main__":
    sys.exit(main())
