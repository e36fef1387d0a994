"""The rules of a job that its types can't express, and how its values are read. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from appliance.jobs import wire
from appliance.jobs.schedule import check_cron

RESERVED_NAMES = frozenset({"all", "runs"})  # parts of paths
NAME = "a name has at most 40 small letters, digits, - and _, and is not `all` or `runs`"


class SpecProblem(ValueError):
    """`path`: the wrong field, such as `backoff.factor`; empty: no single one."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path = path


def check_name(name: str) -> None:
    """Raises SpecProblem."""
    try:
        msgspec.convert(name, wire.JobName)
    except msgspec.ValidationError:
        raise SpecProblem("", NAME) from None
    if name in RESERVED_NAMES:
        raise SpecProblem("", NAME)


def read_spec(values: Any) -> wire.JobSpec:
    """Raises SpecProblem."""
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
    """Raises SpecProblem."""
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
    if spec.ask is not None and spec.ask.default not in (None, *spec.ask.choices):
        raise SpecProblem("ask.default", "the default is not one of the choices")
    for variable in spec.secrets.keys() & spec.environment.keys():
        raise SpecProblem(f"secrets.{variable}", f"{variable} is in `environment` too")


def find_cycle(name: str, specs: Mapping[str, wire.JobSpec]) -> str:
    """A way along `after` from a job to itself, such as `a, b, a`; "" if there is none."""
    waiting: list[tuple[str, ...]] = [(name,)]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        for before in specs[path[-1]].after if path[-1] in specs else ():
            if before == name:
                return ", ".join((*path, before))
            if before not in seen:
                seen.add(before)
                waiting.append((*path, before))
    return ""


def check_given(name: str, spec: wire.JobSpec, others: Mapping[str, wire.JobSpec]) -> None:
    """Raises BadJobSpec, for a job that is not a file."""
    try:
        if cycle := find_cycle(name, {**others, name: spec}):
            raise SpecProblem("after", f"these jobs wait for each other: {cycle}")
        check_name(name)
        check_rules(spec)
    except SpecProblem as error:
        field = {"field": error.path} if error.path else {}
        raise wire.BadJobSpec(f"{name}: {error}", details=field) from None


def describe(spec: wire.JobSpec) -> str | None:
    """Its schedule in a few words."""
    if spec.cron is not None:
        return spec.cron if spec.time_zone == "UTC" else f"{spec.cron} {spec.time_zone}"
    return None if spec.interval_seconds is None else f"every {spec.interval_seconds:g} s"
