"""Pieces of generated pages: tables, and types of the wire in words."""

from collections.abc import Iterable, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import inspect as shapes

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


def link(kind: Any) -> str:
    return f"[{kind.__name__}](#{kind.__name__.lower()})"


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


def fields(struct: Any) -> list[tuple[str, str, str]]:
    """(name, type, default) of every field of a struct, its tag first."""
    config = struct.__struct_config__
    rows = [_row(field) for field in shapes.type_info(struct).fields]  # type: ignore[attr-defined]
    if config.tag is not None:
        rows.insert(0, (code(config.tag_field), code(f'"{config.tag}"'), "required"))
    return rows


def inner_structs(struct: Any) -> list[Any]:
    """Structs in the fields of another struct, and in its lists."""
    structs = []
    for field in shapes.type_info(struct).fields:  # type: ignore[attr-defined]
        bare = _bare(field.type)
        for inner in (bare, _bare(getattr(bare, "item_type", None)), *getattr(bare, "types", ())):
            if isinstance(inner, shapes.StructType):
                structs.append(inner.cls)
    return structs


def _row(field: shapes.Field) -> tuple[str, str, str]:
    if field.required:
        default = "required"
    elif field.default_factory is not msgspec.NODEFAULT:
        default = code(json_text(field.default_factory()))
    else:
        unset = field.default is None or field.default is msgspec.NODEFAULT
        default = "none" if unset else code(json_text(field.default))
    return code(field.encode_name), _described(field.type), default


def _described(kind: Any) -> str:
    """A type in words: what it is, how long or large it may be, and what was said beside it."""
    words = []
    while isinstance(kind, shapes.Metadata):
        words.append((kind.extra_json_schema or {}).get("description", ""))
        kind = kind.type
    return "; ".join(filter(None, [_kind(kind), *words]))


def _kind(kind: Any) -> str:
    match kind:
        case shapes.UnionType():
            some = [inner for inner in kind.types if not isinstance(inner, shapes.NoneType)]
            return " or ".join(_described(part) for part in some)
        case shapes.ListType():
            return f"list{_lengths(kind)} of {_described(kind.item_type)}"
        case shapes.StructType():
            return link(kind.cls)
        case shapes.LiteralType():
            return " or ".join(code(json_text(value)) for value in kind.values)
        case shapes.StrType():
            pattern = f" matching `{kind.pattern}`" if kind.pattern else ""
            return f"text{_lengths(kind)}{pattern}"
        case shapes.IntType() | shapes.FloatType():
            name = "integer" if isinstance(kind, shapes.IntType) else "number"
            above = f", at least {kind.ge:g}" if kind.ge is not None else ""
            return name + above + (f", at most {kind.le}" if kind.le is not None else "")
        case _:
            return type(kind).__name__.removesuffix("Type").lower()


def _lengths(kind: Any) -> str:
    if kind.max_length is None:
        return "" if kind.min_length is None else f" ({kind.min_length} or more)"
    return f" ({kind.min_length or 0} to {kind.max_length})"


def _bare(kind: Any) -> Any:
    while isinstance(kind, shapes.Metadata):
        kind = kind.type
    return kind


def json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
