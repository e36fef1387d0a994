"""`python -m tests.bench SUITE`: measures, prints one JSON object on stdout.
`python -m tests.bench compare BASE` compares this tree with a commit, by turns.

Exit code 1 when a row lost work, was refused or could not run; a target that is not reached
is a result and no failure.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tests.bench import machine, turns
from tests.bench.backup import suite as backup
from tests.bench.broker import suite as broker
from tests.bench.courier import suite as courier
from tests.bench.export import suite as export
from tests.bench.hub import suite as hub
from tests.bench.network import suite as network
from tests.bench.outbox import suite as outbox
from tests.bench.runner import Options
from tests.bench.target import Refused

SUITES: dict[str, Any] = {
    "hub": hub,
    "courier": courier,
    "outbox": outbox,
    "export": export,
    "broker": broker,
    "backup": backup,
    "network": network,
}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("suite", choices=list(SUITES))
    parser.add_argument("--rows", help="for instance P1,P4, C2 or O1 (default: all)")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs")
    parser.add_argument(
        "--workspace", type=Path, help="measure the appliance that serves it (default: start one)"
    )
    parser.add_argument(
        "--directory", type=Path, help="where to make workspaces (default: the temporary folder)"
    )
    parser.add_argument(
        "--messages", type=int, help="messages of the long past in P6, P7, P9, K1, K2"
    )
    parser.add_argument("--out", type=Path, help="write the JSON there too")
    flags = parser.parse_args(arguments)
    known = SUITES[flags.suite].ROWS
    flags.rows = flags.rows or ",".join(known)
    flags.rows = [name.strip().upper() for name in flags.rows.split(",") if name.strip()]
    unknown = sorted(set(flags.rows) - set(known))
    if unknown:
        parser.error(f"no such row: {', '.join(unknown)}")
    return flags


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["compare"]:
        return turns.main(given[1:])
    flags = parse(arguments)
    try:
        machine.require_linux()
        result = SUITES[flags.suite].run(
            Options(flags.rows, flags.quick, flags.workspace, flags.directory, flags.messages)
        )
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    text = json.dumps(result, indent=1)
    print(text)
    if flags.out is not None:
        flags.out.write_text(text + "\n")
    return 1 if any("failed" in row for row in result["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
