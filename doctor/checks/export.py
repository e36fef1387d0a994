"""Exported segments: whole, and not too far behind the log."""

import os
from collections.abc import Iterator
from datetime import datetime

import msgspec

from appliance.export import segment
from appliance.export.manifests import Catalogue, check
from appliance.export.settings import JobsSettings
from appliance.export.trouble import ExportError
from appliance.kernel import config
from appliance.kernel.clock import utc
from doctor.check import Check, Context, Cost, Finding, Severity


class _OurSection(msgspec.Struct, frozen=True):
    """Only [jobs]; what else is wrong in the file is said by another check."""

    jobs: JobsSettings = JobsSettings()


def _settings(context: Context) -> JobsSettings:
    try:
        return config.load(_OurSection, context.datadir.settings_file, os.environ).jobs
    except config.BadSettings:
        return JobsSettings()


def _catalogue(context: Context) -> Catalogue:
    return Catalogue(context.datadir.workspace / _settings(context).export_dir)


def _lag(context: Context) -> Iterator[Finding]:
    """Only where the appliance itself is to export; who does it by hand knows when."""
    settings = _settings(context)
    if not settings.export:
        return
    last = _catalogue(context).last_event_id()
    for _, connection in context.opened("hub"):
        row = connection.execute(
            "SELECT ts FROM events WHERE event_id > ? ORDER BY event_id LIMIT 1", (last,)
        ).fetchone()
        waited = 0.0 if row is None else _age_seconds(context, row[0])
        if waited > settings.export_lag_warning_seconds:
            yield Finding(
                Severity.WARNING,
                "export",
                f"events after {last} have waited {waited:.0f} s to be exported",
                "agentlip export segments",
            )


def _age_seconds(context: Context, text: str) -> float:
    try:
        written = datetime.fromisoformat(utc(text)).timestamp()
    except ValueError:
        return 0.0
    return context.clock.now_ms() / 1000 - written


def _segments(context: Context) -> Iterator[Finding]:
    """What can be seen without reading the segments through."""
    yield from _look(context, thorough=False)


def _content(context: Context) -> Iterator[Finding]:
    yield from _look(context, thorough=True)


def _look(context: Context, thorough: bool) -> Iterator[Finding]:
    catalogue = _catalogue(context)
    hint = f"agentlip export verify {catalogue.folder.parent}"
    good = []
    for path in catalogue.paths():
        try:
            manifest = catalogue.read(path)
            good.append(manifest)
            digest = manifest.sha256 if thorough else None
            check(catalogue.data(manifest), manifest.bytes, digest)
        except ExportError as error:
            if path.exists():  # else it was replaced and removed meanwhile
                yield Finding(Severity.ERROR, path.name, error.message, hint)
        except OSError as error:
            yield Finding(Severity.ERROR, path.name, f"can't be read: {error.strerror}", hint)
    for sentence in segment.problems_of_chain(segment.live(good)):
        yield Finding(Severity.ERROR, "export", sentence, hint)


CHECKS = (
    Check(
        name="jobs.export-lag",
        inspects="events are exported in time, where the appliance exports",
        find=_lag,
    ),
    Check(
        name="jobs.segments",
        inspects="exported segments are there, of the size they should have, and in a chain",
        find=_segments,
    ),
    Check(
        name="jobs.segments-content",
        inspects="exported segments hold what their manifests say",
        cost=Cost.EXPENSIVE,
        find=_content,
    ),
)
