"""[hooks]: commands that run on inbox events."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

# The events and scopes in `matching.py`.
EVENT = "^on-(message|dm|mention|disconnect|reconnect|startup|topic-.+)$"
SCOPE = r"^(reply:event|dm:send:sender|topic:[^\s:*]{1,200}:post)$"
Word = Annotated[str, Meta(min_length=1, max_length=4096)]


class HookCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[hooks.commands]]: a command and the event it runs on."""

    on: Annotated[str, Meta(pattern=EVENT, max_length=220)]
    run: Annotated[tuple[Word, ...], Meta(min_length=1, max_length=100)]
    mesh: str | None = None  # only this mesh's events; unset: all meshes
    scopes: tuple[Annotated[str, Meta(pattern=SCOPE)], ...] = ()  # scopes: what the hook can send
    network_policy: Literal["allow", "deny"] = "allow"  # deny: as far as the machine can


class HookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[hooks]: commands that run on inbox events; docs/reference/inbox.md."""

    enabled: Literal["auto", "on", "off"] = "auto"  # auto: off in CI
    commands: tuple[HookCommand, ...] = ()  # commands and their events
    include_own_messages: bool = False  # also run hooks for this member's own messages
