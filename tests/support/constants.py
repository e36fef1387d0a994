"""Other values of constants of the code, so that a test need not wait for them."""

from pkgutil import resolve_name
from typing import Any

import msgspec


def set_constants(constants: dict[str, Any]) -> None:
    """`constants` maps dotted names to values; that of a struct is a dict of fields."""
    for path, value in constants.items():
        module, _, name = path.rpartition(".")
        target = resolve_name(module)  # or a class
        if isinstance(value, dict):
            value = msgspec.structs.replace(getattr(target, name), **value)
        assert hasattr(target, name), path
        setattr(target, name, value)
