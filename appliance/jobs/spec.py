"""Checks the job rules that types can't express, and reads a job's values. Pure."""

import fnmatch
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from appliance.declared_scopes import DECLARED_SCOPES
from appliance.jobs import wire
from appliance.jobs.schedule import check_cron
from appliance.shared.exported_logs import LOGS

RESERVED_NAMES = frozenset({"all", "runs"})  # path parts
EVENTS = {
    "hub": "channel.created topic.created topic.renamed topic.attachment_added message.created"
           " message.edited message.enriched message.moved_topic message.deleted"
           " entry.acknowledged entry.declined entry.overdue topic.resolved topic.reopened"
           " topic.handoff message.pinned message.unpinned pause.began pause.ended ceiling.warned",
    "outbox": "send.accepted send.dead send.aborted send.requeued attempt.delivered attempt.failed",
    "courier": "envelope.accepted envelope.acked envelope.failed envelope.rejected"
               " envelope.expired envelope.dead",
    "export": "segment.written",
}  # fmt: skip
"""Each source's events; a test compares them with the written ones."""
NAMING = ("streams:", "views:")  # how scopes begin that have a pattern
NAME = "a name has at most 40 small letters, digits, - and _, and is not `all` or `runs`"


class SpecProblem(ValueError):
    """A wrong job. `path`: the wrong field, such as `backoff.factor`; empty: not a single field."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path = path


def check_name(name: str) -> None:
    """Check a job's name. Raises SpecProblem."""
    try:
        msgspec.convert(name, wire.JobName)
    except msgspec.ValidationError:
        raise SpecProblem("", NAME) from None
    if name in RESERVED_NAMES:
        raise SpecProblem("", NAME)


def read_spec(values: Any) -> wire.JobSpec:
    """Decode a job. Raises SpecProblem."""
    try:
        spec = msgspec.convert(values, wire.JobSpec)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$.")
        field = path.rstrip("`")
        if reason.startswith("Object contains unknown field `"):
            field = ".".join(filter(None, (field, reason.split("`")[1])))
        raise SpecProblem(field, reason[0].lower() + reason[1:]) from None
    check_rules(spec)
    return spec


def check_rules(spec: wire.JobSpec) -> None:
    """Check the rules between fields. Raises SpecProblem."""
    if not spec.command and spec.image is None:
        raise SpecProblem("command", "only a job with an `image` needs no program")
    if spec.spark and spec.image is not None:
        raise SpecProblem("spark", "a job with an `image` runs what the image has")
    if spec.mounts and spec.image is None:
        raise SpecProblem("mounts", "only a job with an `image` has `mounts`")
    if spec.cron is not None:
        if spec.interval_seconds is not None:
            raise SpecProblem("interval_seconds", "a job has an interval or `cron`, not both")
        try:
            check_cron(spec.cron, spec.time_zone)
        except ValueError as error:
            field = "time_zone" if "time zone" in str(error) else "cron"
            raise SpecProblem(field, str(error)) from None
    for number, trigger in enumerate(spec.on):
        check_known(f"on[{number}].event", [trigger.event], EVENTS[trigger.source].split())
        if trigger.source == "export":
            check_known(f"on[{number}].where", [trigger.where or "*"], LOGS)
    scopes = [text.partition("@")[0] for text in spec.scopes if not text.startswith(NAMING)]
    check_known("scopes", scopes, DECLARED_SCOPES)
    if spec.ask is not None and spec.ask.default not in (None, *spec.ask.choices):
        raise SpecProblem("ask.default", "the default is not one of the choices")
    for variable in spec.secrets.keys() & spec.environment.keys():
        raise SpecProblem(f"secrets.{variable}", f"{variable} is in `environment` too")


def check_known(field: str, patterns: Iterable[str], names: Collection[str]) -> None:
    """Raise SpecProblem if a pattern matches no name."""
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise SpecProblem(
                field, f"{field}: {pattern!r} is not one of {', '.join(sorted(names))}"
            )


def check_cycle(name: str, specs: Mapping[str, wire.JobSpec]) -> None:
    """Raise SpecProblem if `after` leads from a job back to itself: `a, b, a`."""
    waiting: list[tuple[str, ...]] = [(name,)]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        for before in specs[path[-1]].after if path[-1] in specs else ():
            if before == name:
                cycle = ", ".join((*path, before))
                raise SpecProblem("after", f"these jobs wait for each other: {cycle}")
            if before not in seen:
                seen.add(before)
                waiting.append((*path, before))


def check_given(name: str, spec: wire.JobSpec, others: Mapping[str, wire.JobSpec]) -> None:
    """Raise BadJobSpec for a wrong job that is not a file."""
    try:
        check_cycle(name, {**others, name: spec})
        check_name(name)
        check_rules(spec)
    except SpecProblem as error:
        field = {"field": error.path} if error.path else {}
        raise wire.BadJobSpec(f"{name}: {error}", details=field) from None


def describe(spec: wire.JobSpec) -> str | None:
    """Return the job's schedule in a few words."""
    if spec.cron is not None:
        return spec.cron if spec.time_zone == "UTC" else f"{spec.cron} {spec.time_zone}"
    return None if spec.interval_seconds is None else f"every {spec.interval_seconds:g} s"
