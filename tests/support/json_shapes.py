"""Shapes of JSON: made from schemas or from values, and whether one still keeps another's promises.

A shape:   types      which JSON types it may have, sorted
           fields     of an object, by name; `required` those that are always there
           items      of a list
           enum       the only values there are
           limits     what a schema says beside (maxLength, minimum, …)
           variants   of a union of objects, by the value of its tag
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Shape = dict[str, Any]

UPPER = ("maxLength", "maximum", "maxItems")
LOWER = ("minLength", "minimum", "minItems", "exclusiveMinimum")
JSON_NAMES = {
    bool: "boolean", int: "integer", float: "number", str: "string",
    list: "array", dict: "object", type(None): "null",
}  # fmt: skip
EVERYTHING = sorted(JSON_NAMES.values())


# -- from schemas -----------------------------------------------------------------------------


def of_schema(schema: Mapping[str, Any], components: Mapping[str, Any]) -> Shape:
    while "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    if parts := schema.get("anyOf") or schema.get("oneOf"):
        return _of_union([of_schema(part, components) for part in parts])
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    shape: Shape = {"types": [schema["type"]] if "type" in schema else EVERYTHING}
    if values is not None:
        shape = {"types": sorted({JSON_NAMES[type(v)] for v in values}), "enum": sorted(values)}
    if "properties" in schema:
        fields = {name: of_schema(kind, components) for name, kind in schema["properties"].items()}
        shape["fields"] = dict(sorted(fields.items()))
        shape["required"] = sorted(schema.get("required", ()))
    if "items" in schema:
        shape["items"] = of_schema(schema["items"], components)
    limits = {name: schema[name] for name in (*UPPER, *LOWER, "pattern") if name in schema}
    if limits:
        shape["limits"] = limits
    return shape


def _of_union(parts: list[Shape]) -> Shape:
    objects = [part for part in parts if "fields" in part]
    joined: Shape = {"types": sorted({name for part in parts for name in part["types"]})}
    if len(objects) > 1:
        joined["variants"] = {_tag(part): part for part in objects}
        objects = []
    for part in parts:
        if part in objects or "fields" not in part:
            joined |= {name: part[name] for name in part if name not in ("types", "enum")}
    if all("enum" in part for part in parts):
        joined["enum"] = sorted(value for part in parts for value in part["enum"])
    return joined


def _tag(part: Shape) -> str:
    for field in part["fields"].values():
        if len(field.get("enum", ())) == 1:
            return str(field["enum"][0])
    return ",".join(part["required"])


# -- from values ------------------------------------------------------------------------------


def of_values(values: Iterable[Any]) -> Shape:
    """What all of `values` have in common, and where they differ."""
    values = list(values)
    shape: Shape = {"types": sorted({JSON_NAMES[type(value)] for value in values})}
    objects = [value for value in values if isinstance(value, dict)]
    items = [item for value in values if isinstance(value, list) for item in value]
    if any(objects):
        names = sorted({name for value in objects for name in value})
        shape["fields"] = {
            name: of_values(value[name] for value in objects if name in value) for name in names
        }
        shape["required"] = [name for name in names if all(name in value for value in objects)]
    if items:
        shape["items"] = of_values(items)
    return shape


# -- promises ---------------------------------------------------------------------------------


def broken_answer(frozen: Shape, now: Shape, at: str) -> Iterator[str]:
    """What a reader of the frozen shape could not read any more."""
    for name in sorted(set(now["types"]) - set(frozen["types"])):
        yield f"{at}: may be {name} now"
    for name, field in frozen.get("fields", {}).items():
        if name not in now.get("fields", {}):
            yield f"{at}.{name}: is gone"
            continue
        if name in frozen["required"] and name not in now["required"]:
            yield f"{at}.{name}: may be missing now"
        yield from broken_answer(field, now["fields"][name], f"{at}.{name}")
    if "items" in frozen and "items" in now:
        yield from broken_answer(frozen["items"], now["items"], f"{at}[]")
    for tag, variant in frozen.get("variants", {}).items():
        there = now.get("variants", {}).get(tag)
        if there is None:
            yield f"{at}<{tag}>: is gone"
        else:
            yield from broken_answer(variant, there, f"{at}<{tag}>")


def broken_question(frozen: Shape, now: Shape, at: str) -> Iterator[str]:
    """What a sender of the frozen shape could not send any more."""
    for name in sorted(set(frozen["types"]) - set(now["types"])):
        yield f"{at}: may not be {name} any more"
    missing = set(frozen.get("enum", ())) - set(now.get("enum", frozen.get("enum", ())))
    if missing or ("enum" in now and "enum" not in frozen):
        yield f"{at}: takes fewer values"
    yield from _tighter(frozen.get("limits", {}), now.get("limits", {}), at)
    for name in sorted(set(now.get("required", ())) - set(frozen.get("required", ()))):
        yield f"{at}.{name}: is needed now"
    for name, field in frozen.get("fields", {}).items():
        if name not in now.get("fields", {}):
            yield f"{at}.{name}: is not known any more"
        else:
            yield from broken_question(field, now["fields"][name], f"{at}.{name}")
    if "items" in frozen and "items" in now:
        yield from broken_question(frozen["items"], now["items"], f"{at}[]")
    for tag, variant in frozen.get("variants", {}).items():
        there = now.get("variants", {}).get(tag)
        if there is None:
            yield f"{at}<{tag}>: is not taken any more"
        else:
            yield from broken_question(variant, there, f"{at}<{tag}>")


def _tighter(frozen: Mapping[str, Any], now: Mapping[str, Any], at: str) -> Iterator[str]:
    for name, limit in now.items():
        before = frozen.get(name)
        if before is None:
            yield f"{at}: {name} is new"
        elif name in UPPER and limit < before:
            yield f"{at}: {name} is smaller"
        elif name in LOWER and limit > before:
            yield f"{at}: {name} is larger"
        elif name == "pattern" and limit != before:
            yield f"{at}: has another pattern"


def added(frozen: Shape, now: Shape, at: str) -> Iterator[str]:
    """The parts of a shape that are new and not frozen yet."""
    for name, field in now.get("fields", {}).items():
        if name in frozen.get("fields", {}):
            yield from added(frozen["fields"][name], field, f"{at}.{name}")
        elif "fields" in frozen:
            yield f"{at}.{name}"
    for tag, variant in now.get("variants", {}).items():
        if tag in frozen.get("variants", {}):
            yield from added(frozen["variants"][tag], variant, f"{at}<{tag}>")
        else:
            yield f"{at}<{tag}>"
    if "items" in frozen and "items" in now:
        yield from added(frozen["items"], now["items"], f"{at}[]")


# -- in a file --------------------------------------------------------------------------------

DEFINITIONS = "$defs"
REFERENCE = "$ref"


def folded(shapes: Mapping[str, Any]) -> dict[str, Any]:
    """`shapes` with every object that occurs more than once written once, under `$defs`.

    A reference is `{"$ref": name}`; a shape that has only types is a string, "null|string".
    """
    seen: Counter[str] = Counter()
    names: dict[str, str] = {}

    def count(shape: Any, name: str) -> None:
        for key, inner, inner_name in _inner(shape, name):
            count(inner, inner_name)
            if key and isinstance(inner, dict) and "fields" in inner:
                text = json.dumps(inner, sort_keys=True)
                seen[text] += 1
                names.setdefault(text, inner_name)

    count(shapes, "")
    definitions: dict[str, Any] = {}
    references: dict[str, str] = {}
    for text in sorted((text for text, times in seen.items() if times > 1), key=len):
        name, number = names[text], 2
        while name in definitions:
            name, number = f"{names[text]}-{number}", number + 1
        definitions[name] = _fold(json.loads(text), references)
        references[text] = name
    return {DEFINITIONS: definitions, **_fold(dict(shapes), references)}


def _inner(shape: Any, name: str) -> Iterator[tuple[str, Any, str]]:
    """The objects inside: the key they have, the object, and a name for it."""
    if isinstance(shape, dict):
        for key, value in shape.items():
            inner_name = name if key in ("fields", "items", "variants", "answer") else key
            yield key, value, inner_name or key
    elif isinstance(shape, list):
        for value in shape:
            yield "", value, name


def _fold(shape: Any, references: Mapping[str, str]) -> Any:
    if not isinstance(shape, dict):
        return shape
    if list(shape) == ["types"] and isinstance(shape["types"], list):
        return "|".join(shape["types"])
    folded_shape = {}
    for key, value in shape.items():
        reference = references.get(json.dumps(value, sort_keys=True))
        folded_shape[key] = {REFERENCE: reference} if reference else _fold(value, references)
    return folded_shape


def unfolded(document: Mapping[str, Any]) -> dict[str, Any]:
    """The shapes that `folded` made `document` from."""
    definitions = document.get(DEFINITIONS, {})

    def unfold(value: Any, *, is_shape: bool) -> Any:
        if is_shape and isinstance(value, str):
            return {"types": value.split("|")}
        if not isinstance(value, dict):
            return value
        if REFERENCE in value:
            return unfold(definitions[value[REFERENCE]], is_shape=True)
        return {
            key: {name: unfold(inner, is_shape=True) for name, inner in part.items()}
            if key in ("fields", "variants") and isinstance(part, dict)
            else unfold(part, is_shape=key in ("answer", "query", "body", "items"))
            for key, part in value.items()
        }

    return {
        key: unfold(shape, is_shape=True) for key, shape in document.items() if key != DEFINITIONS
    }
