"""Runs a job: arguments, session, job, and an error message with an exit code.

run.py ingest --in EXPORT --out LAKE run.py activity --in LAKE run.py activity --in LAKE --from
2026-02-01 --to 2026-02-28
"""

import argparse
import json
import os
import re
import sys
import time
import traceback
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # as a script, which is how spark-submit starts it
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from appliance import __version__
from spark import errors, last_run, pull, results, secret
from spark.appliance_client import is_url
from spark.files import writable
from spark.jobs import JOBS, SKIP
from spark.lease import hold
from spark.locations import REFUSED, Location, as_object, location, refusal
from spark.progress import ProgressReporter
from spark.request import (
    JobDefinition,
    JobReport,
    JobRequest,
    parse_day,
)

PATTERN = "*?[]{}\\"
CALLED = "An error occurred while calling "  # what Python says of an exception of Java
FILE = re.compile(r"(?:s3a:/|hdfs:/|file:)?/[^\s'\"`(),;]+\.(?:parquet|jsonl|json)\b")
# Texts in errors of the engine, and their meaning. The first match applies.
TRANSLATED: tuple[tuple[str, type[errors.JobError], str], ...] = (
    ("No space left on device", errors.OutputNotWritable, "the disk is full"),
    ("Permission denied", errors.OutputNotWritable, "no permission to write to the output"),
    ("Read-only file system", errors.OutputNotWritable, "the file system is read-only"),
    ("is not a Parquet file", errors.SegmentTorn, "a segment is not a Parquet file"),
    ("Could not read footer", errors.SegmentTorn, "a segment is not a Parquet file"),
    ("CANNOT_READ_FILE", errors.SegmentTorn, "a segment cannot be read in its format"),
    ("FAILED_READ_FILE", errors.SegmentTorn, "a segment cannot be read in its format"),
    ("S3AFileSystem not found", errors.StorageUnreachable, "the image is not agentlip-spark-s3"),
    ("DELTA_CONCURRENT", errors.OutputBusy, "another job wrote to the tables at the same time"),
    ("DELTA_METADATA_CHANGED", errors.OutputBusy, "another job made the tables at the same time"),
    ("DELTA_PROTOCOL_CHANGED", errors.OutputBusy, "another job made the tables at the same time"),
    ("Connection refused", errors.EngineUnreachable, "the engine does not respond"),
    ("All masters are unresponsive", errors.EngineUnreachable, "the master does not respond"),
)


def main(words: list[str] | None = None) -> int:
    flags = parse(sys.argv[1:] if words is None else words)
    run, clock = (
        last_run.RunRecord(name_of(flags), datetime.now(UTC), __version__),
        time.monotonic(),
    )
    run.exit_code = attempt(flags, run)
    run.seconds, run.finished_at = time.monotonic() - clock, datetime.now(UTC)
    if run.exit_code:
        run.outcome = last_run.FAILED
    if run.exit_code != errors.Usage.exit_code:  # otherwise nothing ran
        keep(flags, run)
    return run.exit_code


def name_of(flags: argparse.Namespace) -> str:
    """Return the record's name. A run that only reads does not replace an erasure's record."""
    looks = [name for name in ("verify", "dry-run") if getattr(flags, name, None)]
    return "-".join([flags.job, *looks])


def attempt(flags: argparse.Namespace, run: last_run.RunRecord) -> int:
    """Run the job. Return the exit code."""
    try:
        work(flags, run)
    except (Exception, KeyboardInterrupt) as error:
        ours = translate(error)
        run.error = ours.message
        print(f"Error: {ours.message}\n  hint: {ours.hint}", file=sys.stderr, flush=True)
        if flags.verbose or not isinstance(error, errors.JobError | OSError | KeyboardInterrupt):
            traceback.print_exc()
        return ours.exit_code
    return 0


def keep(flags: argparse.Namespace, record: last_run.RunRecord) -> None:
    """Write the record beside the tables and report the run. Failures don't make the job fail."""
    problems = []
    out = flags.out or (None if is_url(flags.source) else location(flags.source))
    if out is not None:
        problems.append(last_run.write(out, record))
    if flags.report_to:
        try:
            token = secret.read(flags.token_file, secret.TOKEN_HINT)
            token = token or os.environ.get("AGENTLIP_TOKEN")
            problems.append(last_run.send(flags.report_to, token, record))
        except errors.Usage as error:
            problems.append(error.message)
    for problem in filter(None, problems):
        print(f"Warning: {problem}", file=sys.stderr, flush=True)


def translate(error: BaseException) -> errors.JobError:
    """Return the job error that represents this error."""
    if isinstance(error, errors.JobError):
        return error
    text = f"{error}\n{error.__cause__ or ''}"
    file = FILE.search(text)
    if REFUSED.search(text):
        return refusal(file[0] if file else "the storage", text)
    if isinstance(error, OSError):
        return errors.StorageUnreachable(f"{error.filename}: {error.strerror}")
    if isinstance(error, KeyboardInterrupt):
        return errors.Interrupted("interrupted; nothing was published")
    for words, kind, sentence in TRANSLATED:
        if words in text:
            return kind(f"{sentence}: {file[0]}" if file else sentence)
    lines = [line for line in str(error).splitlines() if line and not line.startswith(CALLED)]
    first = lines[0].removeprefix(": ")[:300] if lines else type(error).__name__
    return errors.JobError(f"the job failed: {first}", "the error of the engine follows")


# -- arguments --------------------------------------------------------------------------


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="agentlip-spark", description="Spark jobs over the log.")
    subparsers = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    for name, job in JOBS.items():
        add_arguments(subparsers.add_parser(name, help=job.about, description=job.about), name, job)
    return parser.parse_args(words)


def add_arguments(parser: argparse.ArgumentParser, name: str, job: JobDefinition) -> None:
    lake = " (or a lake that has it)" if job.reads_tables else ""
    about = f"directory, s3a: or hdfs: URL of exported segments, or an appliance's URL{lake}"
    parser.add_argument("--in", dest="source", type=address, required=True,
                        metavar="DIR|URL", help=about)  # fmt: skip
    about = "directory, s3a: or hdfs: URL of the tables (default: the lake that the job reads)"
    parser.add_argument("--out", type=location, required=not job.reads_tables,
                        metavar="LAKE", help=about)  # fmt: skip
    parser.add_argument("--token-file", type=Path, help="file with the token for the appliance")
    about = "appliance to which the run is reported, when it ends"
    reported_to = os.environ.get("AGENTLIP_URL")
    parser.add_argument("--report-to", metavar="URL", default=reported_to, help=about)
    if job.has_days:
        about = "the first day: 2026-02-01, or -7 for a week ago"
        parser.add_argument("--from", dest="first", type=parse_day, metavar="DAY", help=about)
        about = "the last day, inclusive"
        parser.add_argument("--to", dest="last", type=parse_day, metavar="DAY", help=about)
    for argument in job.arguments:
        option, about = f"--{argument.name}", argument.help
        if argument.metavar is None:
            parser.add_argument(option, dest=argument.name, action="store_true", help=about)
        else:
            parser.add_argument(
                option, dest=argument.name, metavar=argument.metavar, type=argument.parse,
                default=argument.default, required=argument.required, help=about,
            )  # fmt: skip
    engine = parser.add_argument_group("engine")
    about = "Spark master, such as spark://HOST:7077 or k8s://… (default: local[*])"
    engine.add_argument("--master", metavar="URL", help=about)
    about = "heap of a local engine (default: 60 %% of the container's limit, else 1g)"
    engine.add_argument("--driver-memory", metavar="SIZE", help=about)
    about = "setting of Spark; may be repeated"
    engine.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help=about)
    about = "partitions of a shuffle (default: by the bytes to read)"
    engine.add_argument("--partitions", type=int, help=about)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    parser.add_argument("--verbose", action="store_true", help="print the traceback of every error")
    parser.set_defaults(job=name, first=None, last=None)


def address(text: str) -> str:
    """Return an appliance's URL, or what `location` accepts."""
    return text if is_url(text) else str(location(text))


# -- work -------------------------------------------------------------------------------


def work(flags: argparse.Namespace, run: last_run.RunRecord) -> None:
    refuse_nonsense(flags)
    job, progress = JOBS[flags.job], ProgressReporter(quiet=flags.quiet)
    out = location(str(flags.out or flags.source)).resolve()
    require_plain(out)
    progress.storage = as_object(out)
    source = bring(flags, job, out, progress)
    request = JobRequest(
        None,  # a plan decides without a session
        source, out, progress, datetime.now(UTC), flags.first, flags.last,
        {argument.name: getattr(flags, argument.name) for argument in job.arguments},
        flags.partitions,
    )  # fmt: skip
    request, segments = tables_of(job, request)
    if is_up_to_date(flags.job, request, segments):
        report = JobReport({}, [], None)
    else:
        with hold(out, errors.OutputBusy(f"another job writes to {out}")) as held:
            report = with_spark(flags, request._replace(lease=held), segments)
    if SKIP in job.arguments:
        more = [
            warning for warning in standing(flags.job, request) if warning not in report.results
        ]
        report = report._replace(results=[*report.results, *more])
    run.counts = report.counts
    run.outcome = last_run.NOTHING_NEW if report.path is None else last_run.OK
    for result in report.results:
        if result.name == results.SEGMENTS_SOUND and result.failed:
            run.outcome, run.error = last_run.FAILED, f"segments are skipped: {result.note}"
            run.counts = report.counts | {"skipped_segments": result.failed}
    print_report(flags, report, progress)
    if report.error is not None:
        raise report.error


def standing(name: str, request: JobRequest) -> list[results.CheckResult]:
    """Return the warnings from the newest run that read segments: ingest, for jobs on its
    tables."""
    if JOBS[name].reads_tables:
        name, request = "ingest", request._replace(out=request.source)
    return list(load(name, "plan").warnings(request.out))


def tables_of(job: JobDefinition, request: JobRequest) -> tuple[JobRequest, Location | None]:
    """Return, for a job that reads tables, a request to read tables, and the segments to ingest
    first. A lake in another directory is only read."""
    own = request.source == request.out or not (request.source / "silver" / "runs").exists()
    if not job.reads_tables or not own:
        return request, None
    segments = request.source if (request.source / "events").is_dir() else None
    return request._replace(source=request.out), segments


def is_up_to_date(name: str, request: JobRequest, segments: Location | None) -> bool:
    """Return whether neither ingest nor the job has anything to do, decided without Spark."""
    if find_spec(f"spark.jobs.{name}.plan") is None:
        return False
    if segments and not load("ingest", "plan").up_to_date(request._replace(source=segments)):
        return False
    return bool(load(name, "plan").up_to_date(request))


def with_spark(
    flags: argparse.Namespace, request: JobRequest, segments: Location | None
) -> JobReport:
    """Run the job in a session, after new segments are ingested."""
    from spark import probe, session  # starts Java, which a run with nothing to do does without

    engine = session.EngineSettings(
        flags.master, flags.driver_memory, tuple(flags.conf),
        "WARN" if flags.verbose else "FATAL",
    )  # fmt: skip
    request.progress.say(f"{flags.job}: starting Spark {flags.master or 'here'}")
    request = request._replace(spark=session.build(flags.job, engine))
    try:
        if not request.spark.sparkContext.master.startswith("local"):
            probe.require(request.spark, segments or request.source, request.out)
        if segments is not None:
            load("ingest").run(request._replace(source=segments))
            if not (request.out / "silver" / "runs").exists():
                raise errors.EmptyRange(f"{segments} contains no events yet")
        report: JobReport = load(flags.job).run(request)
    finally:
        request.spark.stop()
    return report


def load(name: str, module: str = "job") -> Any:
    return import_module(f"spark.jobs.{name}.{module}")


def refuse_nonsense(flags: argparse.Namespace) -> None:
    if flags.first and flags.last and flags.last < flags.first:
        raise errors.EmptyRange(f"--to {flags.last} lies before --from {flags.first}")
    if is_url(flags.source) and flags.out is None:
        raise errors.Usage("with the URL of an appliance, --out is required")
    if is_url(flags.source) and as_object(flags.out):
        raise errors.Usage(
            "segments of an appliance are downloaded to a directory",
            "publish them in a bucket: the setting export.target; then --in s3a://BUCKET/PREFIX",
        )
    if flags.report_to and not is_url(flags.report_to):
        raise errors.Usage("--report-to must be the URL of an appliance, such as https://HOST")
    if any("=" not in pair for pair in flags.conf):
        raise errors.Usage("--conf must be KEY=VALUE")
    if flags.partitions is not None and flags.partitions < 1:
        raise errors.Usage("--partitions must be at least 1")


def bring(
    flags: argparse.Namespace, job: JobDefinition, out: Location, progress: ProgressReporter
) -> Location:
    """Return the directory to read: the given one, or a download from an appliance."""
    if not is_url(flags.source):
        source = location(flags.source).resolve()
        require_plain(source)
        if not source.is_dir():
            raise errors.SegmentMissing(f"{source} is not a directory", "check --in")
        folders = (*job.logs, *(["silver"] if "events" in job.logs else []))
        if not any((source / folder).is_dir() for folder in folders):
            raise errors.SegmentMissing(
                f"{source} contains neither exported segments nor tables",
                "export first: agentlip export segments --out DIR",
            )
        if flags.out is None and not (source / "silver" / "runs").exists():
            raise errors.Usage(f"{source} contains no tables yet: set a directory with --out")
    else:
        source = out / "bronze"
        token = secret.read(flags.token_file, secret.TOKEN_HINT)
        count = pull.pull(flags.source, token, source, job.logs)
        progress.say(f"{flags.job}: {count} new segments from {flags.source}")
        if job.snapshot:
            name = pull.pull_snapshot(flags.source, token, source)
            progress.say(f"{flags.job}: the snapshot {name} from {flags.source}")
    with writable(out):
        out.mkdir(parents=True, exist_ok=True)
    return source


def require_plain(path: Location) -> None:
    """Refuse paths with characters that Spark interprets as a pattern."""
    if special := sorted(set(str(path)) & set(PATTERN)):
        raise errors.Usage(
            f"{path} contains {' '.join(special)}, which Spark interprets as a pattern",
            "use a directory, or a link to it, without these characters",
        )


def print_report(flags: argparse.Namespace, report: JobReport, progress: ProgressReporter) -> None:
    answer: dict[str, Any] = {
        "job": flags.job,
        "published": str(report.path) if report.path else None,
        "counts": report.counts,
        "checks": [result.as_json() for result in report.results],
        "seconds": progress.seconds,
    }
    if flags.json:
        print(json.dumps(answer))
        return
    for line in results.describe(report.results):
        print(line)
    if report.path is None and not any(report.counts.values()):
        print(f"{flags.job}: nothing new")
        return
    counts = ", ".join(
        f"{value:,} {name}" if isinstance(value, int) else f"{name} {value}"
        for name, value in report.counts.items()
    )
    print(f"{flags.job}: {counts}")
    if report.path is not None:
        print(f"published {report.path}")


if __name__ == "__main__":
    sys.exit(main())
