"""A Spark Connect server with the tables of a lake: connect.py --lake LAKE

Clients need the token of SPARK_CONNECT_TOKEN_FILE; without one the server listens on the loopback
address only. `SHOW TABLES` lists the tables; a table of a new job appears within seconds.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):  # as a script
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from spark import errors, secret, session
from spark.locations import Location, location
from spark.request import add_engine_arguments
from spark.tables import versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
PORT = 15002
LOOPBACK = "127.0.0.1"
REFRESH_SECONDS = 10  # until a table of a new job is listed, and a new version is read
TOKEN_FILE = "SPARK_CONNECT_TOKEN_FILE"


def main(words: list[str] | None = None) -> int:
    flags = parse(sys.argv[1:] if words is None else words)
    try:
        serve(flags)
    except errors.JobError as error:
        print(f"Error: {error.message}\n  hint: {error.hint}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="connect", description=__doc__)
    parser.add_argument("--lake", type=location, help="directory whose tables are registered")
    parser.add_argument("--port", type=int, default=PORT, help=f"port (default: {PORT})")
    add_engine_arguments(parser)
    return parser.parse_args(words)


def serve(flags: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT."""
    done = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: done.set())
    token = secret.read(os.environ.get(TOKEN_FILE))
    if token is not None:  # in the environment, because arguments are visible to other processes
        os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = token
    conf = (
        f"spark.plugins={PLUGIN}",
        f"spark.connect.grpc.binding.address={LOOPBACK if token is None else '0.0.0.0'}",
        f"spark.connect.grpc.binding.port={flags.port}",
        *flags.conf,
    )
    engine = session.EngineSettings(flags.master, flags.driver_memory, conf=conf)
    spark = session.build("connect", engine)
    try:
        where = f"port {flags.port}" if token else f"{LOOPBACK}:{flags.port} only (no token)"
        print(f"connect: listening on {where}", file=sys.stderr, flush=True)
        known: dict[str, int] = {}
        while not done.is_set():
            if flags.lake is not None and (new := register(spark, flags.lake, known)):
                print(f"connect: registered {new} tables", file=sys.stderr, flush=True)
            done.wait(REFRESH_SECONDS)
    finally:
        spark.stop()


def register(spark: SparkSession, lake: Location, known: dict[str, int]) -> int:
    """Make a view of each table at its newest run, unless `known` has that version. Returns how
    many are new or changed."""
    changed = 0
    for name, path, version in tables(lake):
        if known.get(name) == version:
            continue
        location = str(path).replace("`", "``")
        rows = f"SELECT * FROM delta.`{location}` VERSION AS OF {version}"
        spark.sql(f"CREATE OR REPLACE VIEW `{name}` AS {rows}")
        known[name] = version
        changed += 1
    return changed


def tables(lake: Location) -> Iterator[tuple[str, Location, int]]:
    """Each table with its name and version: those of silver by their own names, those of gold with
    the job before them, such as activity_pairs."""
    for folder in (lake / "silver", *sorted((lake / "gold").glob("*"))):
        for table, version in versions(folder).items():
            job = "" if folder.name in ("silver", table) else f"{folder.name}_"
            yield f"{job}{table}", (folder / table).resolve(), version


if __name__ == "__main__":
    sys.exit(main())
