"""Pieces of generated pages: tables, and types of the wire in words."""

from collections.abc import Iterable, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

MADE = "<!-- Made by ops/write_docs.py from the code: `just docs`. Not edited by hand. -->"
PLAIN = {"str": "text", "int": "integer", "float": "number", "bool": "boolean"}


def page(sections: Sequence[str]) -> str:
    title, *rest = sections
    return "\n\n".join([title, MADE, *filter(None, rest)]) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines)


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def sentence(text: str) -> str:
    text = " ".join(text.split())
    return text[:1].upper() + text[1:]


def plain_name(kind: Any) -> str:
    """The type of a setting."""
    if get_origin(kind) in (Union, UnionType):  # X | None
        return plain_name(next(arg for arg in get_args(kind) if arg is not NoneType))
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if isinstance(kind, type) and kind.__name__ in PLAIN:
        return PLAIN[kind.__name__]
    if get_origin(kind) is Literal:
        return " or ".join(code(json_text(choice)) for choice in get_args(kind))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "table"
    inner = get_args(kind)[0] if get_origin(kind) is tuple else None
    if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
        return "list of tables"
    return "list of text" if inner is not None else "text"


def json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
