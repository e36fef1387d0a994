"""The only main: arguments, session, job, and one sentence with an exit code if it fails.

run.py ingest --in EXPORT --out LAKE
run.py activity --in LAKE --from 2026-02-01 --to 2026-02-28
"""

import argparse
import json
import os
import sys
import traceback
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # as a script, which is how spark-submit starts it
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from spark import checks, errors, pull, session
from spark.dataset import writable
from spark.jobs import JOBS
from spark.progress import Progress
from spark.request import Job, Report, Request

HINT = "  hint: "
PATTERN = "*?[]{}\\"
# What the engine says, and what it means. The first that fits.
TRANSLATED: tuple[tuple[str, type[errors.JobError], str], ...] = (
    ("No space left on device", errors.OutputNotWritable, "the disk is full"),
    ("Permission denied", errors.OutputNotWritable, "the file system refuses to write there"),
    ("Read-only file system", errors.OutputNotWritable, "the file system is read-only"),
    ("is not a Parquet file", errors.SegmentTorn, "a segment is no Parquet file"),
    ("Could not read footer", errors.SegmentTorn, "a segment is no Parquet file"),
    ("CANNOT_READ_FILE", errors.SegmentTorn, "a segment can't be read as what it claims to be"),
    ("FAILED_READ_FILE", errors.SegmentTorn, "a segment can't be read as what it claims to be"),
    ("Connection refused", errors.EngineUnreachable, "the engine does not answer"),
    ("All masters are unresponsive", errors.EngineUnreachable, "the master does not answer"),
)


def main(words: list[str] | None = None) -> int:
    flags = parse(sys.argv[1:] if words is None else words)
    try:
        return work(flags)
    except errors.JobError as error:
        return fail(error, flags.verbose)
    except KeyboardInterrupt:
        print("Error: interrupted; nothing was published", file=sys.stderr)
        return 130
    except Exception as error:
        return fail(translate(error), True)


def fail(error: errors.JobError, with_stack: bool) -> int:
    print(f"Error: {error.sentence}\n{HINT}{error.hint}", file=sys.stderr, flush=True)
    if with_stack:
        traceback.print_exc()
    return error.exit_code


def translate(error: Exception) -> errors.JobError:
    said = f"{error}\n{error.__cause__ or ''}"
    for words, kind, sentence in TRANSLATED:
        if words in said:
            return kind(sentence)
    first = str(error).strip().split("\n", 1)[0][:300] or type(error).__name__
    return errors.JobError(f"the job failed: {first}", "the engine's own words follow")


# -- arguments --------------------------------------------------------------------------


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="agentlip-spark", description="Jobs over the log.")
    found = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    for name, job in JOBS.items():
        add_arguments(found.add_parser(name, help=job.about, description=job.about), name, job)
    return parser.parse_args(words)


def add_arguments(parser: argparse.ArgumentParser, name: str, job: Job) -> None:
    lake = " (or a lake that has it)" if job.needs == "silver" else ""
    parser.add_argument(
        "--in",
        dest="source",
        required=True,
        metavar="DIR|URL",
        help=f"a directory of exported segments, or an appliance's URL{lake}",
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=job.needs != "silver",
        metavar="LAKE",
        help="where the tables go; of a job that reads a lake: that one, unless given",
    )
    parser.add_argument("--token-file", type=Path, help="of the appliance")
    if job.days:
        parser.add_argument("--from", dest="first", type=day, required=True, metavar="DAY")
        parser.add_argument("--to", dest="last", type=day, required=True, metavar="DAY",
                            help="the last day, it too")  # fmt: skip
    engine = parser.add_argument_group("engine")
    engine.add_argument("--master", help="local[*] unless given; spark://HOST:7077, k8s://…")
    engine.add_argument("--remote", help="a Spark Connect server, sc://HOST:15002")
    heap = "heap of the engine here: 60 %% of the container's limit, else 1g, unless given"
    engine.add_argument("--driver-memory", metavar="SIZE", help=heap)
    engine.add_argument("--partitions", type=int, default=16, help="of a shuffle, before merging")
    engine.add_argument("--event-log", metavar="DIR", help="for Spark's history server")
    engine.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--json", action="store_true", help="the report as JSON on stdout")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--verbose", action="store_true", help="the stack behind every error")
    parser.set_defaults(job=name, first=None, last=None)


def day(text: str) -> date:
    """A day, or how many days before today (UTC), for schedules: -1 is yesterday."""
    try:
        if text == "0" or (text.startswith("-") and text[1:].isdigit()):
            return datetime.now(UTC).date() + timedelta(days=int(text))
        return date.fromisoformat(text)
    except (ValueError, OverflowError):
        sentence = f"{text!r} is no day such as 2026-02-01, nor -7 for a week ago"
        raise argparse.ArgumentTypeError(sentence) from None


# -- work -------------------------------------------------------------------------------


def work(flags: argparse.Namespace) -> int:
    refuse_nonsense(flags)
    job, progress = JOBS[flags.job], Progress(quiet=flags.quiet)
    out = Path(flags.out or flags.source).resolve()
    require_plain(out)
    source = bring(flags, job, out, progress)
    engine = session.Engine(
        flags.master, flags.remote, flags.driver_memory, flags.partitions, flags.event_log,
        tuple(flags.conf), "WARN" if flags.verbose else "FATAL",
    )  # fmt: skip
    progress.say(f"{flags.job}: starting Spark {flags.master or flags.remote or 'here'}")
    spark = session.build(flags.job, engine)
    ask = Request(
        spark, source, out, progress, datetime.now(UTC), flags.first, flags.last,
        remote=bool(flags.remote),
    )  # fmt: skip
    try:
        if job.needs == "silver" and not (source / "silver" / "current").exists():
            JOBS["ingest"].run(ask)
            ask = ask._replace(source=out)
            if not (out / "silver" / "current").exists():
                raise errors.EmptyRange(f"no events are in {source} yet")
        report = job.run(ask)
    finally:
        spark.stop()
    tell(flags, report, progress)
    if report.differences:
        raise errors.DifferencesFound(
            f"the log and the snapshot differ in {report.differences:,} places",
            f"read the table: {report.path}/differences",
        )
    return 0


def refuse_nonsense(flags: argparse.Namespace) -> None:
    if flags.master and flags.remote:
        raise errors.Usage("--master and --remote exclude each other")
    if flags.first and flags.last and flags.last < flags.first:
        raise errors.EmptyRange(f"--to {flags.last} lies before --from {flags.first}")
    if pull.is_url(flags.source) and flags.out is None:
        raise errors.Usage("an appliance's URL needs --out, a directory for the tables")
    if any("=" not in pair for pair in flags.conf):
        raise errors.Usage("--conf wants KEY=VALUE")
    if flags.partitions < 1:
        raise errors.Usage("--partitions must be at least 1")


def bring(flags: argparse.Namespace, job: Job, out: Path, progress: Progress) -> Path:
    """The directory to read: the one that was named, or what an appliance gave."""
    if not pull.is_url(flags.source):
        source = Path(flags.source).resolve()
        require_plain(source)
        if not source.is_dir():
            raise errors.SegmentMissing(f"there is no directory {source}", "look at --in")
        if not any((source / part).is_dir() for part in ("events", "silver")):
            raise errors.SegmentMissing(
                f"{source} holds neither exported segments nor tables",
                "export first: agentlip export segments --out DIR",
            )
        if flags.out is None and not (source / "silver" / "current").exists():
            raise errors.Usage(f"{source} holds no tables yet: name a directory with --out")
    else:
        with writable(out):
            out.mkdir(parents=True, exist_ok=True)
        source = out / "bronze"
        token = pull.read_token(flags.token_file)
        count = pull.pull(flags.source, token, source)
        progress.say(f"{flags.job}: {count} new segments from {flags.source}")
        with writable(out):
            (source / "events").mkdir(parents=True, exist_ok=True)
        if job.snapshot:
            name = pull.pull_snapshot(flags.source, token, source)
            progress.say(f"{flags.job}: the snapshot {name} from {flags.source}")
    require_writable(out)
    return source


def require_plain(path: Path) -> None:
    """The engine takes some letters of a path for a pattern, and finds nothing."""
    if found := sorted(set(str(path)) & set(PATTERN)):
        raise errors.Usage(
            f"{path} has {' '.join(found)} in it, which the engine takes for a pattern",
            "name a directory, or a link to it, without these letters",
        )


def require_writable(out: Path) -> None:
    with writable(out):
        out.mkdir(parents=True, exist_ok=True)
        probe = out / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()


def tell(flags: argparse.Namespace, report: Report, progress: Progress) -> None:
    told: dict[str, Any] = {
        "job": flags.job,
        "published": str(report.path) if report.path else None,
        "counts": report.counts,
        "checks": [result._asdict() for result in report.results],
        "seconds": progress.seconds,
    }
    if flags.json:
        print(json.dumps(told))
        return
    if report.path is None:
        print(f"{flags.job}: nothing new")
        return
    for line in checks.spell(report.results):
        print(line)
    counts = ", ".join(
        f"{value:,} {name}" if isinstance(value, int) else f"{name} {value}"
        for name, value in report.counts.items()
    )
    print(f"{flags.job}: {counts}\npublished {report.path}")


if __name__ == "__main__":
    sys.exit(main())
