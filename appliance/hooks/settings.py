"""[hooks]: commands that run when something happens in the inbox."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Word = Annotated[str, Meta(min_length=1, max_length=4096)]


class HookCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[hooks.commands]]: a command and when it runs."""

    on: Annotated[str, Meta(min_length=1, max_length=220)]
    run: Annotated[tuple[Word, ...], Meta(min_length=1, max_length=100)]
    mesh: str | None = None  # only of this mesh
    scopes: tuple[Annotated[str, Meta(max_length=240)], ...] = ()  # what it may send
    network_policy: Literal["allow", "deny"] = "allow"  # deny: as far as this machine can


class HookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[hooks]: declared commands on events of the inbox: [[hooks.commands]]; docs/inbox.md."""

    enabled: Literal["auto", "on", "off"] = "auto"  # auto: off in CI
    commands: tuple[HookCommand, ...] = ()  # when, and what
    own: bool = False  # also for messages of this member itself
    hops_max: Positive = 4  # hooks that a message may come from, one answering another
    seconds_max: Seconds = 30.0  # a run's time; then TERM to its process group
    kill_after_seconds: Seconds = 5.0  # and KILL
    at_once_max: Annotated[int, Meta(ge=1, le=64)] = 8  # runs at the same time
    queue_max: Positive = 1000  # runs that wait; more are dropped and counted
    event_bytes_max: Annotated[int, Meta(ge=4096)] = 256 * 1024  # of the JSON a hook reads
    said_bytes_max: Positive = 64 * 1024  # of what it prints
    grant_seconds: Annotated[float, Meta(gt=0, le=300)] = 300.0  # for which it may send
    acts_max: Positive = 100  # sends that one run may ask for, refused ones too
    grants_max: Positive = 10_000  # grants in force at once; the oldest gives way
