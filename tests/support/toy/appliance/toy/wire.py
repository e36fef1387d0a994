"""Requests, replies and errors of notes."""

from typing import Annotated

from msgspec import Meta, Struct

from appliance.kernel.errors import Exhausted
from appliance.kernel.scopes import Scopes

READ, WRITE = "toy:read", "toy:write"
SCOPES = Scopes(frozenset({READ, WRITE}), free=frozenset({READ}))


class AddNote(Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1, max_length=100)]


class NoArguments(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Notes(Struct, frozen=True):
    notes: list[str]


class TooManyNotes(Exhausted):
    code = "TOO_MANY_NOTES"
    default_message = "there are too many notes"
    default_hint = "raise toy.notes_max"
